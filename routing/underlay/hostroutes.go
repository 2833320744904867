package underlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weft/routing/internal/kernel"
)

// HostRoutes are the routes of the main routing table by which this host reaches others
// without the overlay. Rules that send packets to other tables are not read.
type HostRoutes struct {
	// Routes are the unicast routes, one for each next hop.
	Routes []kernel.Route
	// Local are the host's addresses.
	Local []netip.Addr
}

// newHostRoutes leaves out the overlay's own routes: those with our protocol number, and all
// routes and addresses on a device of ours, or on a TUN of flannel's that we would take over.
func newHostRoutes(ds []kernel.Device, as []kernel.AddrInfo, rs []kernel.Route) HostRoutes {
	names, own := map[string]bool{}, map[int]bool{}
	for _, d := range ds {
		if d.Alias == kernel.Alias || d.Kind == "tun" && d.Alias == "" && kernel.IsTUNName(d.Name) {
			names[d.Name], own[d.Index] = true, true
		}
	}
	var out HostRoutes
	for _, a := range as {
		if !own[a.Index] {
			out.Local = append(out.Local, a.Addr)
		}
	}
	for _, r := range rs {
		if r.Protocol != kernel.RouteProtocol && !names[r.Link] {
			out.Routes = append(out.Routes, r)
		}
	}
	return out
}

// Displaced is an address that this host reaches by a route whose place the overlay's
// route takes, so that it is cut off. It is comparable.
type Displaced struct {
	Addr    netip.Addr
	Network netip.Prefix // the overlay's, which contains Addr
	Route   kernel.Route // the best one besides the overlay's
}

// Reason says what is wrong, and what to do. who names the owner of the address.
func (d Displaced) Reason(who string) string {
	key, via := "Network", d.Route.Link
	if d.Network.Addr().Is6() {
		key = "IPv6Network"
	}
	if d.Route.Gateway.IsValid() {
		via = fmt.Sprintf("%v on %s", d.Route.Gateway, via)
	}
	return fmt.Sprintf("%s %v contains %s %v, which is reached via %s: the overlay's route would take its "+
		"place; choose another %s or add a more specific route to %v",
		key, d.Network, who, d.Addr, via, key, d.Addr)
}

// Displaced finds the addresses of addrs that an overlay with these networks cuts off: they are
// within one, not this host's own, and no route to them is longer than the network. An address
// without any route is not among them, since no route's place is taken. It is pure.
func (h HostRoutes) Displaced(networks []netip.Prefix, addrs []netip.Addr) []Displaced {
	var out []Displaced
	for _, a := range addrs {
		for _, n := range networks {
			if !n.Contains(a) || slices.Contains(h.Local, a) {
				continue
			}
			if r, ok := h.best(a); ok && r.Dst.Bits() <= n.Bits() {
				out = append(out, Displaced{a, n, r})
			}
		}
	}
	return out
}

// best returns the longest route to a, and of equally long ones the first with the least metric.
func (h HostRoutes) best(a netip.Addr) (best kernel.Route, ok bool) {
	for _, r := range h.Routes {
		if !r.Dst.Contains(a) {
			continue
		}
		if !ok || cmp.Or(cmp.Compare(best.Dst.Bits(), r.Dst.Bits()), cmp.Compare(r.Metric, best.Metric)) < 0 {
			best, ok = r, true
		}
	}
	return best, ok
}

// inside are those of addrs that lie in one of the networks.
func inside(networks []netip.Prefix, addrs []netip.Addr) []netip.Addr {
	var in []netip.Addr
	for _, a := range addrs {
		if slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			in = append(in, a)
		}
	}
	return in
}
