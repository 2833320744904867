package kernel_test

import (
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// inNamespace moves the test to a network namespace of its own and opens it.
func inNamespace(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.Enter(t)
	return kernelHere(t)
}

func kernelHere(t *testing.T) *kernel.Kernel {
	t.Helper()
	k, err := kernel.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}
