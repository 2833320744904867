package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"weft/encap"
)

// Neighbour states of linux/neighbour.h.
const (
	NudReachable = 0x02
	NudFailed    = 0x20
	NudStale     = 0x04
	nudDelay     = 0x08
	nudProbe     = 0x10
	NudPermanent = 0x80
)

// Neighbour is an entry of the kernel's table, on the underlay's link.
type Neighbour struct {
	Addr  netip.Addr
	MAC   encap.MAC
	State uint16
}

// Usable reports whether frames may go to the entry's link address, as the kernel's own would. An entry that
// is not confirmed (STALE) is usable; one without address, or that failed, is not.
func (n Neighbour) Usable() bool {
	const states = NudReachable | NudStale | nudDelay | nudProbe | NudPermanent
	return n.State&states != 0 && n.MAC != encap.MAC{} && n.MAC[0]&1 == 0
}

// RouteUnicast is RTN_UNICAST of rtnetlink.h.
const RouteUnicast = 1

// Answer is the kernel's answer to the question how it would send a datagram to one address.
type Answer struct {
	Kind    uint8 // RouteUnicast, or the type of route (RTN_*) that refuses the datagram
	Link    int   // index
	Gateway netip.Addr
	Source  netip.Addr // of packets of the host's own; the zero Addr if the route names none
	MTU     int        // of the route, in bytes; 0 if it has none of its own
	Encap   bool
	Err     error // instead of all that
}

// Neighbour returns whose link address frames to dst carry when they leave by link: the gateway or
// dst itself. The error says why datagrams to dst cannot be sent as frames.
func (a Answer) Neighbour(dst netip.Addr, link EtherInfo) (netip.Addr, error) {
	switch {
	case a.Err != nil:
		return netip.Addr{}, a.Err
	case a.Kind != RouteUnicast:
		return netip.Addr{}, fmt.Errorf("its route is of type %d, not unicast", a.Kind)
	case a.Link != link.Index:
		return netip.Addr{}, fmt.Errorf("its route leaves by link %d, not %s", a.Link, link.Name)
	case a.Encap:
		return netip.Addr{}, fmt.Errorf("its route encapsulates")
	case a.MTU > 0 && a.MTU < link.MTU:
		return netip.Addr{}, fmt.Errorf("its route has MTU %d, %s %d", a.MTU, link.Name, link.MTU)
	case a.Gateway.IsValid():
		return a.Gateway, nil
	}
	return dst, nil
}

// Covers reports whether one of the sorted addresses lies in p.
func Covers(p netip.Prefix, sorted []netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(sorted, p.Masked().Addr(), netip.Addr.Compare)
	return i < len(sorted) && p.Contains(sorted[i])
}
