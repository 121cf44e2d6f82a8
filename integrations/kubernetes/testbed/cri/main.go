// A client of container runtimes for the test bed: runs, lists and removes pods by the Container Runtime Interface.
//
//	cri SOCKET run JSON     a pod and its containers; prints their numbers, or fails and leaves nothing
//	cri SOCKET make JSON    the same, without starting the containers
//	cri SOCKET start CONTAINER
//	cri SOCKET remove POD   stops and removes a pod
//	cri SOCKET list         all pods and containers, as JSON
//	cri SOCKET exec CONTAINER WORD...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type container struct {
	Name    string            `json:"name"`
	Command []string          `json:"command"`
	Env     map[string]string `json:"env"`
	Quota   int64             `json:"quota"`
	Shares  int64             `json:"shares"`
}

type pod struct {
	Name         string            `json:"name"`
	Uid          string            `json:"uid"`
	Image        string            `json:"image"`
	Handler      string            `json:"handler"`
	CgroupParent string            `json:"cgroup_parent"`
	Annotations  map[string]string `json:"annotations"`
	Containers   []container       `json:"containers"`
}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: cri SOCKET run|make|start|remove|list|exec ..."))
	}
	link, err := grpc.NewClient("unix://"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	fail(err)
	client := cri.NewRuntimeServiceClient(link)
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	switch os.Args[2] {
	case "run", "make":
		var wanted pod
		fail(json.Unmarshal([]byte(os.Args[3]), &wanted))
		fail(run(ctx, client, wanted, os.Args[2] == "run"))
	case "start":
		_, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: os.Args[3]})
		fail(err)
	case "remove":
		fail(remove(ctx, client, os.Args[3]))
	case "list":
		fail(list(ctx, client))
	case "exec":
		answer, err := client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: os.Args[3], Cmd: os.Args[4:], Timeout: 20})
		fail(err)
		os.Stdout.Write(answer.Stdout)
		os.Stderr.Write(answer.Stderr)
		os.Exit(int(answer.ExitCode))
	default:
		fail(fmt.Errorf("unknown: %s", os.Args[2]))
	}
}

// An emulated machine is slow.
func patience() time.Duration {
	if os.Getenv("TRIMTAB_TESTBED") != "" {
		return 5 * time.Minute
	}
	return 30 * time.Second
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, client cri.RuntimeServiceClient, wanted pod, started bool) error {
	host := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD}
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: wanted.Name, Uid: wanted.Uid, Namespace: "default"},
		Annotations:  wanted.Annotations,
		LogDirectory: "/tmp",
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    wanted.CgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: host},
		},
	}
	sandbox, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: wanted.Handler})
	if err != nil {
		return err
	}
	numbers := []string{}
	for _, one := range wanted.Containers {
		number, err := create(ctx, client, sandbox.PodSandboxId, config, one, wanted.Image, host)
		if err == nil && started {
			_, err = client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: number})
		}
		if err != nil {
			_ = remove(ctx, client, sandbox.PodSandboxId)
			return err
		}
		numbers = append(numbers, number)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"pod": sandbox.PodSandboxId, "containers": numbers})
}

func create(ctx context.Context, client cri.RuntimeServiceClient, sandbox string, config *cri.PodSandboxConfig, one container, image string, host *cri.NamespaceOption) (string, error) {
	var env []*cri.KeyValue
	for name, value := range one.Env {
		env = append(env, &cri.KeyValue{Key: name, Value: value})
	}
	resources := &cri.LinuxContainerResources{CpuShares: one.Shares}
	if one.Quota > 0 {
		resources.CpuPeriod, resources.CpuQuota = 100000, one.Quota
	}
	made, err := client.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  sandbox,
		SandboxConfig: config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: one.Name},
			Image:    &cri.ImageSpec{Image: image},
			Command:  one.Command,
			Envs:     env,
			Linux: &cri.LinuxContainerConfig{
				Resources:       resources,
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: host},
			},
		},
	})
	if err != nil {
		return "", err
	}
	return made.ContainerId, nil
}

func remove(ctx context.Context, client cri.RuntimeServiceClient, sandbox string) error {
	if _, err := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	_, err := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return err
}

func list(ctx context.Context, client cri.RuntimeServiceClient) error {
	pods, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"pods": pods.Items, "containers": containers.Containers})
}
