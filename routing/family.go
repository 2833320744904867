package routing

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
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
func families(r lease.Record, s lease.Set, u underlay.Link) []family {
	all := []family{
		{false, r.V4, s.Own.V4, s.Config.Network, r.PublicIP, u.Addr4, r.BackendData, "PublicIP", "BackendData"},
		{true, r.V6, s.Own.V6, s.Config.IPv6Network, r.PublicIPv6, u.Addr6, r.BackendV6Data, "PublicIPv6",
			"BackendV6Data"},
	}
	var out []family
	for _, f := range all {
		if f.subnet.IsValid() && f.network.IsValid() && f.own.IsValid() {
			out = append(out, f)
		}
	}
	return out
}

// way is one subnet of a peer, and what is reported about it: skipped if it cannot be used.
type way struct {
	r      *lease.Record
	f      family
	report Reached
}

// ways are the subnets of all peers, in the set's order. Those whose record is of another type than name are
// skipped.
func (s situation) ways(name string) iter.Seq[way] {
	return func(yield func(way) bool) {
		for i := range s.set.Peers {
			r := &s.set.Peers[i]
			for _, f := range families(*r, s.set, s.under) {
				if !yield(way{r, f, f.reached(*r, name)}) {
					return
				}
			}
		}
	}
}

// direct skips a way if the peer or this node has no address in its family, and reports whether the way
// counts.
func (w *way) direct() bool {
	if w.report.How != HowSkipped && (!w.f.public.IsValid() || !w.f.local.IsValid()) {
		w.report = w.report.skip("it has no %s, or this node has none", w.f.publicKey)
	}
	return w.report.How != HowSkipped
}

// route is a plain one to the peer.
func (w way) route(s situation) kernel.Route {
	return kernel.PeerRoute(w.f.subnet, w.f.public, s.under.Name, routeMTU(*w.r, w.f.six, s.mtu))
}

// reached begins the report about one subnet of a peer, which is skipped if its record is of another type
// than name.
func (f family) reached(r lease.Record, name string) Reached {
	report := Reached{
		Peer: r.Called(), Node: r.Node(), Address: r.Address(), Subnets: r.Subnets, Subnet: f.subnet, Via: f.public,
	}
	if why := foreign(r, name); why != "" {
		report = report.skip("%s", why)
	}
	return report
}

// foreign says of a record of another type than name what it is; "" if it is of that type.
func foreign(r lease.Record, name string) string {
	if strings.EqualFold(lease.BackendName(r.BackendType), name) {
		return ""
	}
	return fmt.Sprintf("its backend is %s, this network's is %s", backendName(r.BackendType), name)
}

// skip is a report about a subnet that is not reached.
func (r Reached) skip(format string, a ...any) Reached {
	r.How, r.Reason = HowSkipped, fmt.Sprintf(format, a...)
	return r
}

// routeMTU returns the MTU of a route to a peer that takes less than we do; 0 if it takes as much, or
// says nothing. It is not below the minimum that every host has to accept.
func routeMTU(r lease.Record, six bool, ours int) int {
	if r.Weft == nil || r.Weft.MTU <= 0 || r.Weft.MTU >= ours {
		return 0
	}
	if six {
		return max(r.Weft.MTU, minMTU6)
	}
	return max(r.Weft.MTU, minMTU4)
}

// backendName is a record's type for a message: anything may be in one.
func backendName(backendType string) string {
	if backendType == "" {
		return lease.BackendName("")
	}
	return strconv.Quote(backendType)
}

func subnets(s lease.Subnets) []netip.Prefix {
	switch {
	case s.V4.IsValid() && s.V6.IsValid():
		return []netip.Prefix{s.V4, s.V6}
	case s.V4.IsValid():
		return []netip.Prefix{s.V4}
	case s.V6.IsValid():
		return []netip.Prefix{s.V6}
	}
	return nil
}

// valid returns those of addrs that are set; it reuses the slice.
func valid(addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() })
}

func unique(as []netip.Addr) []netip.Addr {
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}

func familyName(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}

// shorten quotes what a record says, for a message.
func shorten(b []byte) string {
	const most = 60
	return fmt.Sprintf("%.*q", most, b)
}

// chooseWay decides between a plain route and the tunnel, for a subnet that has both; direct allows the
// first. The reason says why not the better one, with type auto also why that.
func chooseWay(report Reached, f family, s situation, direct, auto bool) Reached {
	report.How = HowTunnel
	if !direct {
		return report
	}
	h, known := s.hops[f.public]
	if report.Reason = "the way is not known yet"; known {
		report.Reason = h.Indirect(f.public, s.under.Name)
	}
	if report.Reason != "" {
		return report
	}
	report.How = HowRoute
	if auto {
		report.Reason = fmt.Sprintf("%v is on %s itself, so that it needs no tunnel", f.public, s.under.Name)
	}
	return report
}
