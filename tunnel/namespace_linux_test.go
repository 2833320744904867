package tunnel_test

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// host is a network namespace of its own.
type host struct{ *netns.Namespace }

func newHost(t testing.TB) *host {
	t.Helper()
	netns.TUN(t)
	return &host{netns.New(t, t.Name())}
}

// Do runs f in the namespace, one at a time. A goroutine that f starts runs outside.
func (h *host) Do(t testing.TB, f func() error) {
	t.Helper()
	if err := h.Namespace.Do(f); err != nil {
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
			veth.PeerName, veth.PeerMTU, veth.PeerNamespace = "eth0", uint32(mtu), netlink.NsFd(b.FD())
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
