// Checks a file of Kubernetes objects as its API server does before it makes them: every field is known, and the server's own
// validation finds no error. Prints the objects as JSON, one a line, as they are in the file.
//
//	manifest FILE
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: manifest FILE"))
	}
	text, err := os.ReadFile(os.Args[1])
	fail(err)
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	count := 0
	for {
		document, err := documents.Read()
		if err == io.EOF {
			break
		}
		fail(err)
		object, err := yaml.ToJSON(document)
		fail(err)
		if string(object) == "null" {
			continue
		}
		fail(check(object))
		fmt.Println(string(object))
		count++
	}
	if count == 0 {
		fail(errors.New("no object in the file"))
	}
}

// Reads an object with the server's defaults, and refuses unknown and repeated fields.
func check(object []byte) error {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	read, err := runtime.Decode(codecs.UniversalDecoder(), object)
	if err != nil {
		return err
	}
	var faults field.ErrorList
	switch it := read.(type) {
	case *core.Namespace:
		faults = validation.ValidateNamespace(it)
	case *core.ConfigMap:
		faults = validation.ValidateConfigMap(it)
	case *core.Pod:
		faults = validation.ValidatePodCreate(it, validation.PodValidationOptions{})
	case *apps.DaemonSet:
		faults = appsvalidation.ValidateDaemonSet(it, validation.PodValidationOptions{})
	default:
		return fmt.Errorf("%T is not checked here", read)
	}
	return faults.ToAggregate()
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
