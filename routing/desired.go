package routing

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"weft/lease"
)

// trait is what distinguishes one such backend from another.
type trait struct {
	// name and record are Backend's Type and RecordType; path is Status.Path.
	name, record, path string
	// looks says that the way to each peer matters: situation.hops is filled in.
	looks bool
	// oneWay says that all peers are reached alike, so that only those that are not are worth a report.
	oneWay bool
}

// situation is what a backend decides on.
type situation struct {
	set   lease.Set
	under Underlay
	mtu   int // the largest inner packet, in bytes
	// hops are the ways to the peers' addresses, for a backend that looks.
	hops map[netip.Addr]hop
	// tenure is who has had which address or MAC so far.
	tenure tenure
}

// desired is what a backend wants of the kernel.
type desired struct {
	vteps   []VTEP
	overlay overlay
	reached []Reached
	tenure  tenure // for the next time; nil for a type that gives nothing to one peer alone
	// device is Status.Device for a backend without devices of its own.
	device string
}

// way is a backend but for the labour of keeping the kernel so. want is pure.
type way interface {
	trait() trait
	// publish is Backend.Publish.
	publish() (data, v6data json.RawMessage)
	// mtu is the largest inner packet over a link, in bytes. Beside an error it is what is
	// possible, for the families that it suffices for.
	mtu(link int) (int, error)
	want(s situation) desired
}

// family is one of the two subnets of a record with all that goes with it.
type family struct {
	six            bool
	subnet, own    netip.Prefix // the peer's, and ours
	network        netip.Prefix
	public         netip.Addr // the peer's address on the underlay
	local          netip.Addr // ours
	data           json.RawMessage
	publicKey, key string // names in the record, for messages
}

// families lists the subnets of r that this network has.
func families(r lease.Record, s lease.Set, u Underlay) []family {
	all := []family{
		{false, r.V4, s.Own.V4, s.Config.Network, r.PublicIP, u.Addr4, r.BackendData, "PublicIP", "BackendData"},
		{true, r.V6, s.Own.V6, s.Config.IPv6Network, r.PublicIPv6, u.Addr6, r.BackendV6Data, "PublicIPv6", "BackendV6Data"},
	}
	var out []family
	for _, f := range all {
		if f.subnet.IsValid() && f.network.IsValid() && f.own.IsValid() {
			out = append(out, f)
		}
	}
	return out
}

// reached begins the report about one subnet of a peer.
func (f family) reached(r lease.Record) Reached {
	return Reached{Peer: peerName(r), Subnets: r.Subnets, Subnet: f.subnet, Via: f.public}
}

// skip is a report about a subnet that is not reached.
func (r Reached) skip(format string, a ...any) Reached {
	r.How, r.Reason = HowSkipped, fmt.Sprintf(format, a...)
	return r
}

// peerRoute is a route to a peer's subnet. Without a metric IPv4 has 0 and IPv6 what the
// kernel makes of that.
func peerRoute(subnet netip.Prefix, via netip.Addr, link string, mtu int) Route {
	r := Route{Dst: subnet.Masked(), Gateway: via, Link: link, Scope: scopeUniverse, Protocol: RouteProtocol, MTU: mtu}
	if subnet.Addr().Is6() {
		r.Metric = defaultMetric6
	}
	return r
}

// routeMTU is the MTU of a route to a peer that takes less than we do; 0 if it takes as much, or
// says nothing. What no host may be asked to go below is the least.
func routeMTU(r lease.Record, six bool, ours int) int {
	if r.Weft == nil || r.Weft.MTU <= 0 || r.Weft.MTU >= ours {
		return 0
	}
	if six {
		return max(r.Weft.MTU, minMTU6)
	}
	return max(r.Weft.MTU, minMTU4)
}

// indirect says why a peer cannot be reached by a plain route on link; "" if it can.
func (h hop) indirect(a netip.Addr, link string) string {
	switch {
	case h.err != nil:
		return fmt.Sprintf("there is no way to %v: %v", a, h.err)
	case h.gateway.IsValid():
		return fmt.Sprintf("%v is reached through the router %v on %s, not directly", a, h.gateway, h.link)
	case h.link != link:
		return fmt.Sprintf("%v is reached on %s, and the underlay is %s", a, h.link, link)
	}
	return ""
}
