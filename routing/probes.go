package routing

import (
	"cmp"
	"net/netip"

	"weft/lease"
	"weft/routing/probe"
)

// Probing reports whether nodes of that network ask each other whether they answer: the type has peers that
// this node sends to, and Backend.Probe is not false.
func (n Network) Probing() bool {
	f := n.Facts()
	return n.probe && !f.Alone && f.Carrier != 0 && f.Carrier != CarrierOthers
}

// Probes are this node's end of the ways to its peers, and the ways: from its overlay address to theirs, so
// that a probe goes where packets go. On every backend with a device that is the first address of the subnet,
// which the device has. Without a tunnel no address of a subnet is sure to be anybody's, and packets of nodes
// have the addresses of the underlay: these are asked.
func (n Network) Probes(set lease.Set, st Status) (probe.Here, []probe.Way) {
	var here probe.Here
	direct := n.Facts().Direct
	own := map[bool]netip.Addr{false: firstOf(set.Own.V4), true: firstOf(set.Own.V6)}
	if direct {
		own[false], own[true] = st.Underlay.Addr4, st.Underlay.Addr6
	}
	skipped := map[netip.Prefix]bool{}
	here.Devices = append(here.Devices, st.Devices...)
	routed := false
	for _, r := range st.Reached {
		if r.How == HowSkipped {
			skipped[r.Subnet] = true
		}
		routed = routed || r.How == HowRoute
	}
	if routed && st.Underlay.Name != "" { // what comes by a plain route comes by the underlay
		here.Devices = append(here.Devices, st.Underlay.Name)
	}
	for _, six := range []bool{false, true} {
		if a := own[six]; a.IsValid() {
			here.Addrs = append(here.Addrs, a)
		}
	}
	ways := make([]probe.Way, 0, len(set.Peers)*len(here.Addrs)) // of thousands, each time
	for i := range set.Peers {
		r := &set.Peers[i]
		for _, six := range []bool{false, true} {
			subnet, public := r.V4, r.PublicIP
			if six {
				subnet, public = r.V6, r.PublicIPv6
			}
			if !subnet.IsValid() || skipped[subnet] || !own[six].IsValid() {
				continue
			}
			w := probe.Way{Peer: cmp.Or(r.Node(), r.Called()), Name: r.Called(), Addr: firstOf(subnet), Under: public,
				MTU: st.MTU}
			if direct {
				w.Addr = public
			}
			if !w.Under.IsValid() { // an IPv6 subnet that is reached over IPv4
				w.Under = r.PublicIP
			}
			if r.Weft != nil {
				w.Port = uint16(r.Weft.Probe)
				if r.Weft.MTU > 0 {
					w.MTU = min(w.MTU, r.Weft.MTU)
				}
			}
			ways = append(ways, w)
		}
	}
	return here, ways
}

// firstOf is the first address of a subnet, the zero Addr for none.
func firstOf(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	return p.Masked().Addr()
}
