package routing

import (
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// inNamespace moves the test to a network namespace of its own and opens it.
func inNamespace(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.TUN(t)
	netns.Enter(t)
	return kernelHere(t)
}

// aloneInNamespace is inNamespace for a test that changes or measures the whole process, or takes again a port or device
// that it has closed: the fork of another test has it until it runs its program.
func aloneInNamespace(t *testing.T) *kernel.Kernel {
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

func ip(t *testing.T, args string, a ...any) string { t.Helper(); return netns.IP(t, args, a...) }
