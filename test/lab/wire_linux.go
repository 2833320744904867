package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	underlayDev = "eth0"  // of each host on the wire
	wireBridge  = "wire0" // in the wire's namespace
	wireNumber  = 0xfffe  // that of the wire's own address, which is the hosts' gateway
	storeNumber = 0xfffd
)

// underlay4 returns the address in 198.18.0.0/16 with n in its last two bytes. RFC 2544 sets 198.18.0.0/15
// aside for benchmarks.
func underlay4(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
}

// underlay6 returns fd18::n.
func underlay6(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x18, 14: byte(n >> 8), 15: byte(n)})
}

func underlayAddrs(n int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(underlay4(n), 16), netip.PrefixFrom(underlay6(n), 64)}
}

// buildWire makes the namespace with the bridge that all hosts are plugged into.
func (l *Lab) buildWire() error {
	wire, err := l.newHost("wire")
	if err != nil {
		return err
	}
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: wireBridge, MTU: l.Spec.MTU}}
	if err := wire.NS.Netlink().LinkAdd(br); err != nil {
		return fmt.Errorf("add %s: %w", wireBridge, err)
	}
	l.Wire = wire
	return wire.configure(wireBridge, underlayAddrs(wireNumber)...)
}

// plug joins h to the wire by a veth pair: the end in h is called eth0, and the wire's end is called as h.
// The wire is h's default gateway but forwards nothing, so packets that should be in an overlay and are not
// go nowhere.
func (l *Lab) plug(h *Host, number int) error {
	if err := connect(h, underlayDev, l.Wire, h.Name, l.Spec.MTU); err != nil {
		return err
	}
	port, err := l.Wire.link(h.Name)
	if err != nil {
		return err
	}
	bridge, err := l.Wire.link(wireBridge)
	if err != nil {
		return err
	}
	if err := l.Wire.NS.Netlink().LinkSetMasterByIndex(port, bridge.Attrs().Index); err != nil {
		return fmt.Errorf("plug %s into %s: %w", h.Name, wireBridge, err)
	}
	if err := playCard(l.Spec.Wire, h.NS, underlayDev); err != nil {
		return err
	}
	if err := playSwitch(l.Spec.Wire, l.Wire.NS, h.Name); err != nil {
		return err
	}
	if err := l.Wire.configure(h.Name); err != nil {
		return err
	}
	if err := h.configure(underlayDev, underlayAddrs(number)...); err != nil {
		return err
	}
	if err := h.route(anywhere(4), underlay4(wireNumber), underlayDev, 0); err != nil {
		return err
	}
	return h.route(anywhere(6), underlay6(wireNumber), underlayDev, 0)
}

// joinDirectly joins the two nodes by one veth pair. Each is the other's default gateway.
func (l *Lab) joinDirectly() error {
	a, b := l.Node(1), l.Node(2)
	if err := connect(a.Host, underlayDev, b.Host, underlayDev, l.Spec.MTU); err != nil {
		return err
	}
	for _, n := range []*Node{a, b} {
		if err := playCard(l.Spec.Wire, n.NS, underlayDev); err != nil {
			return err
		}
		if err := playSwitch(l.Spec.Wire, n.NS, underlayDev); err != nil {
			return err
		}
		if err := n.configure(underlayDev, underlayAddrs(n.Index)...); err != nil {
			return err
		}
	}
	for _, pair := range [][2]*Node{{a, b}, {b, a}} {
		for _, via := range []netip.Addr{pair[1].Underlay4, pair[1].Underlay6} {
			if err := pair[0].route(anywhereLike(via), via, underlayDev, int(unix.RTNH_F_ONLINK)); err != nil {
				return err
			}
		}
	}
	return nil
}

func anywhere(family int) netip.Prefix {
	if family == 4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func anywhereLike(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return anywhere(4)
	}
	return anywhere(6)
}
