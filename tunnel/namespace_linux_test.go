package tunnel_test

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	testns "weft/test/netns"
)

// host is a network namespace of its own, entered by Do. It exists as long as
// its descriptor is open and needs no name.
type host struct {
	ns netns.NsHandle
}

// newHost makes a namespace with its loopback up. It needs root, and says so.
func newHost(t testing.TB) *host {
	t.Helper()
	testns.TUN(t)
	h := &host{}
	inThread(t, func() error {
		ns, err := netns.New() // and enters it
		h.ns = ns
		return err
	})
	t.Cleanup(func() { _ = h.ns.Close() })
	h.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return h
}

// Do runs f in the namespace, on a thread that is not used again. A goroutine
// that f starts runs outside.
func (h *host) Do(t testing.TB, f func() error) {
	t.Helper()
	inThread(t, func() error {
		if err := netns.Set(h.ns); err != nil {
			return err
		}
		return f()
	})
}

// inThread runs f on a thread of its own, which ends with it.
func inThread(t testing.TB, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// wire joins two hosts by a veth pair, with these addresses and MTU.
func wire(t testing.TB, a, b *host, addrA, addrB string, mtu int) {
	t.Helper()
	a.Do(t, func() error {
		if _, err := netlink.LinkByName("eth0"); err != nil {
			la := netlink.NewLinkAttrs()
			la.Name, la.MTU = "eth0", mtu
			veth := netlink.NewVeth(la)
			veth.PeerName, veth.PeerMTU, veth.PeerNamespace = "eth0", uint32(mtu), netlink.NsFd(int(b.ns))
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
		}
		return addAddr("eth0", addrA)
	})
	b.Do(t, func() error { return addAddr("eth0", addrB) })
}

func addAddr(link, addr string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	a.Flags |= unix.IFA_F_NODAD
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}
