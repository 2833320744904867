package overlay

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"weft/test/lab"
	"weft/test/lab/netns"
	"weft/test/lab/probe"
)

const linkMTU = 1500

// raiseLink joins two namespaces by one veth pair, without a bridge, a route or a node between them.
func raiseLink(r Rung, wire lab.WireKind) (_ *testbed, err error) {
	b := &testbed{rung: r, mtu: linkMTU}
	var spaces []*netns.Namespace
	b.close = func() {
		for _, n := range spaces {
			n.Close()
		}
	}
	defer func() {
		if err != nil {
			b.close()
			err = fmt.Errorf("rung %s: %w", r.Name, err)
		}
	}()
	for i, name := range []string{"from", "to"} {
		n, err := netns.New(name)
		if err != nil {
			return nil, err
		}
		spaces = append(spaces, n)
		// RFC 2544 sets 198.18/15 aside.
		e := probe.Endpoint{Name: name, NS: n, Addr: netip.AddrFrom4([4]byte{198, 18, 0, byte(1 + i)})}
		if i == 0 {
			b.from = e
		} else {
			b.to = e
		}
	}
	err = b.from.NS.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: linkMTU},
		PeerName:  "eth0", PeerMTU: linkMTU, PeerNamespace: netlink.NsFd(b.to.NS.FD()),
	})
	if err != nil {
		return nil, fmt.Errorf("add a veth pair: %w", err)
	}
	for _, e := range []probe.Endpoint{b.from, b.to} {
		nl := e.NS.Netlink()
		l, err := nl.LinkByName("eth0")
		if err != nil {
			return nil, fmt.Errorf("find eth0: %w", err)
		}
		if err := wire.PlayEnd(e.NS, "eth0"); err != nil {
			return nil, err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: e.Addr.AsSlice(), Mask: net.CIDRMask(24, 32)}}
		if err := nl.AddrAdd(l, addr); err != nil {
			return nil, fmt.Errorf("add %s: %w", e.Addr, err)
		}
		if err := nl.LinkSetUp(l); err != nil {
			return nil, fmt.Errorf("set eth0 up: %w", err)
		}
	}
	return b, nil
}
