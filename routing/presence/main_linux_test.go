package presence

import (
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// inNamespace moves the test to a network namespace of its own and opens it. The test runs alone, since it asks
// for answers within milliseconds.
func inNamespace(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.TUN(t)
	netns.EnterAlone(t)
	return kernelHere(t)
}

// newNamespace moves the test's thread on to another one.
func newNamespace(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.Unshare(t)
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
