// Package kerneltest gives a test the kernel of a network namespace of its own.
package kerneltest

import (
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

// Enter makes the test parallel, moves it to a network namespace of its own, and opens it.
func Enter(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.TUN(t)
	netns.Enter(t)
	return Here(t)
}

// EnterAlone is Enter for a test that runs alone: it changes or measures the whole process, or takes again a
// port or device that it has closed. The fork of another test has that until it runs its program.
func EnterAlone(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.TUN(t)
	netns.EnterAlone(t)
	return Here(t)
}

// Another moves the test's thread on to one more namespace.
func Another(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.Unshare(t)
	return Here(t)
}

// Here opens the namespace of the calling thread.
func Here(t *testing.T) *kernel.Kernel {
	t.Helper()
	k, err := kernel.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}
