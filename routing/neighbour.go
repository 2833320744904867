package routing

import (
	"fmt"
	"net/netip"
	"slices"

	"weft/encap"
)

// Neighbour states of linux/neighbour.h.
const (
	nudReachable = 0x02
	nudFailed    = 0x20
	nudStale     = 0x04
	nudDelay     = 0x08
	nudProbe     = 0x10
	nudPermanent = 0x80
)

// neighbour is an entry of the kernel's table, on the underlay's link.
type neighbour struct {
	addr  netip.Addr
	mac   encap.MAC
	state uint16
}

// usable reports whether frames may go to the entry's link address: the kernel's own would.
// One that is not confirmed (STALE) is; one without address or that failed is not.
func (n neighbour) usable() bool {
	const states = nudReachable | nudStale | nudDelay | nudProbe | nudPermanent
	return n.state&states != 0 && n.mac != encap.MAC{} && n.mac[0]&1 == 0
}

// route types of rtnetlink.h.
const routeUnicast = 1

// answer is what the kernel says about how a datagram to one address would be sent.
type answer struct {
	kind    uint8 // routeUnicast, or why not
	link    int   // index
	gateway netip.Addr
	mtu     int // of the route, in bytes; 0 if it has none of its own
	encap   bool
	err     error // instead of all that
}

// neighbour is whose link address frames to dst bear when they leave by link: the
// gateway's or dst's. The error says why they cannot be sent as frames.
func (a answer) neighbour(dst netip.Addr, link etherInfo) (netip.Addr, error) {
	switch {
	case a.err != nil:
		return netip.Addr{}, a.err
	case a.kind != routeUnicast:
		return netip.Addr{}, fmt.Errorf("its route is of type %d, not unicast", a.kind)
	case a.link != link.index:
		return netip.Addr{}, fmt.Errorf("its route leaves by link %d, not %s", a.link, link.name)
	case a.encap:
		return netip.Addr{}, fmt.Errorf("its route encapsulates")
	case a.mtu > 0 && a.mtu < link.mtu:
		return netip.Addr{}, fmt.Errorf("its route has MTU %d, %s %d", a.mtu, link.name, link.mtu)
	case a.gateway.IsValid():
		return a.gateway, nil
	}
	return dst, nil
}

// covers reports whether one of the sorted addresses lies in p.
func covers(p netip.Prefix, sorted []netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(sorted, p.Masked().Addr(), netip.Addr.Compare)
	return i < len(sorted) && p.Contains(sorted[i])
}
