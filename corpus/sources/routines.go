// Goroutines that add; prints how many threads may run Go at once.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

func main() {
	var wait sync.WaitGroup
	parts := make([]uint64, 8)
	for part := range parts {
		wait.Add(1)
		go func(part int) {
			defer wait.Done()
			var sum uint64
			for i := uint64(part); i < 1_600_000_000; i += 8 {
				sum += i ^ sum>>3
			}
			parts[part] = sum
		}(part)
	}
	wait.Wait()
	var sum uint64
	for _, part := range parts {
		sum += part
	}
	fmt.Println("sum", sum, "procs", runtime.GOMAXPROCS(0), "CPUs", runtime.NumCPU())
}
