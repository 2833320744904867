package kernel_test

import (
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// TestIngressHasAnIDOfItsOwn: the kernel removes the tables of a socket that was closed by its port ID, and a
// moment after that is free again.
func TestIngressHasAnIDOfItsOwn(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	local := netip.MustParseAddrPort("192.0.2.1:8285")
	for range 5 {
		i, err := k.OpenIngress("eth0", local)
		if err != nil {
			t.Fatal(err)
		}
		name, err := unix.Getsockname(i.Owner())
		if at, ok := name.(*unix.SockaddrNetlink); err != nil || !ok || at.Pid == uint32(os.Getpid()) {
			t.Fatalf("the owner has the port ID of the process, which the next one gets, too: %v, %v", name, err)
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
