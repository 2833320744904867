package routing

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"weft/lease"
)

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
