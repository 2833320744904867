package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing"
)

// ordinary says that a table is one of those in which weft's routes are, or that every packet asks first.
func ordinary(table int) bool { return table == 255 || table == 254 || table == 253 }

func checkRules(f *Facts) findings {
	var out findings
	for _, r := range f.Links.Rules {
		if ordinary(r.Table) || r.Priority >= 32766 ||
			r.To.IsValid() && !slices.ContainsFunc(f.Network.Networks(), r.To.Overlaps) {
			continue
		}
		v, found := Note, "may send packets for the overlay to table %d, before the main table is asked"
		if r.To.IsValid() && !r.Narrow {
			v, found = Warning, "sends packets for the overlay to table %d, before the main table is asked"
		}
		out = out.says(v, found, r.Table).about(r.Text).
			do("ip rule; ip route show table %d: it should have no route to the overlay's networks", r.Table)
	}
	return out.orOK("none")
}

func checkShadows(f *Facts) findings {
	var out findings
	for _, s := range f.shadows() {
		link, addr := f.connected(s.route)
		switch nobody := s.peer.Subnets == (lease.Subnets{}); {
		case nobody && addr.IsValid():
			continue // check overlap has it
		case nobody:
			out = out.says(Warning, "the route %s via %s lies within Network, and is not weft's: a node that gets "+
				"that subnet is not reached", s.route.Dst, s.route.via())
		default:
			out = out.says(Fault, "the route %s via %s takes packets for peer %s (%s) out of the overlay", s.route.Dst,
				s.route.via(), s.peer.Called(), s.peer.Subnets)
		}
		out = out.about(s.route.Dst.String())
		switch {
		case !addr.IsValid():
			out.do("ip route del %s, and stop what added it, as a VPN or another network plugin", s.route)
		case link.Kind == "bridge":
			out.do("%s", formerPods)
		default:
			out.do("ip addr del %s dev %s, and stop what gave it; the route goes with the address", addr, link.Name)
		}
	}
	return out.orOK("none")
}

// via is where the route leads, in words.
func (r Route) via() string {
	switch {
	case r.Blocks:
		return "nowhere"
	case r.Gateway.IsValid():
		return r.Gateway.String() + " on " + r.Link
	}
	return r.Link
}

// String is the route as ip(8) takes it.
func (r Route) String() string {
	s := r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	if r.Link != "" {
		s += " dev " + r.Link
	}
	if r.Metric != 0 {
		s += fmt.Sprintf(" metric %d", r.Metric)
	}
	return s
}

// connected returns the link and the address by which the kernel made a route; the zero Prefix if it is
// another.
func (f *Facts) connected(r Route) (Link, netip.Prefix) {
	l, _ := f.Links.named(r.Link)
	for _, a := range l.Addrs {
		if !r.Gateway.IsValid() && a.Masked() == r.Dst {
			return l, a
		}
	}
	return Link{}, netip.Prefix{}
}

// shadow is a foreign route that takes packets for a peer; peer is zero if it takes nobody's now.
type shadow struct {
	route Route
	peer  lease.Record
}

func (f *Facts) shadows() (out []shadow) {
	for _, r := range f.Links.Routes {
		within := slices.ContainsFunc(f.Network.Networks(), func(n netip.Prefix) bool { return contains(n, r.Dst) })
		if !within || f.overlays(r) || f.ownSubnet(r.Dst) || isFlannels(r.Link) {
			continue
		}
		nobody := true
		for _, p := range f.peers() {
			if !p.V4.Overlaps(r.Dst) && !p.V6.Overlaps(r.Dst) {
				continue
			}
			nobody = false
			// host-gw and direct routes have the peer's subnet, and lead to the peer: ours to make.
			if !isOf(r.Gateway, p) {
				out = append(out, shadow{r, p})
			}
		}
		if nobody {
			out = append(out, shadow{route: r})
		}
	}
	return out
}

// isOf reports whether a is an address of the peer's own.
func isOf(a netip.Addr, p lease.Record) bool {
	return a.IsValid() && (a == p.PublicIP || a == p.PublicIPv6)
}

// checkPeerRoutes groups peers of which the same is to be said.
func checkPeerRoutes(f *Facts) findings {
	switch {
	case len(f.overlayLinks()) == 0 && f.userspaceDataPlane():
		return says(Unknown, "there is no device of the overlay: weftd has not run here yet, or cleaned up")
	case f.Network.Facts().Alone:
		return says(OK, "backend %s has no peers", f.Network.BackendType)
	}
	shadowed := map[string]bool{}
	for _, s := range f.shadows() {
		shadowed[s.peer.Called()] = true
	}
	type fault struct{ found, skipped string }
	var faults []fault
	lost := map[fault][]lease.Record{}
	good := 0
	for _, p := range f.peers() {
		w, asked := f.Links.To[inside(p)]
		x := fault{"packets to %s leave by " + w.Link + ", and not by the overlay", f.skipped(p)}
		switch {
		case !asked:
			continue
		case x.skipped != "":
			x.found = "weftd does not use it as the way to %s"
		case w.Err != nil:
			x.found = "there is no route to %s"
		case f.intoOverlay(w, p):
			good++
			continue
		case shadowed[p.Called()]:
			continue
		}
		if lost[x] == nil {
			faults = append(faults, x)
		}
		lost[x] = append(lost[x], p)
	}
	var out findings
	for _, x := range faults {
		var names, subnets []string
		for _, p := range lost[x] {
			names, subnets = append(names, p.Called()), append(subnets, p.Subnets.String())
		}
		out = out.says(Fault, x.found, firstOf(subnets)).about(firstOf(names))
		if x.skipped != "" {
			out.because("weftd makes no route: %s", x.skipped).do("%s", f.used(lost[x][0], firstOf(names)))
			continue
		}
		out.do("ip route get %s; weft peers; weft status shows whether weftd runs, is ready, and refuses records",
			inside(lost[x][0]))
	}
	return out.orOK("to %d peers", good)
}

// skipped says why weftd makes no route to the subnet of a peer; "" if it makes one, or has not said.
func (f *Facts) skipped(r lease.Record) string {
	for _, p := range f.Daemon.Peers.Peers {
		for _, y := range p.Reached {
			if y.How == routing.HowSkipped.String() && y.Subnet.Contains(inside(r)) {
				return y.Reason
			}
		}
	}
	return ""
}

// used is how weftd gets to use a peer, one of those names, that it skips. One that did not take up a new
// Type is the one to restart.
func (f *Facts) used(r lease.Record, names string) string {
	switch c := f.Daemon.Status.Config; {
	case f.usable(r):
		return "weft peers has the reasons; weft lease list " + r.Called()
	case c.Differs || c.LastGood || len(c.Changes) > 0:
		return "systemctl restart weftd, since this node does not run what " + f.configPlace() + " has"
	}
	return "on " + names + ": systemctl restart weftd, if " + f.configPlace() + " is for that network, too"
}

// intoOverlay says that a packet that takes w goes to p by the overlay, or as a direct route would. Where a
// controller makes the routes, the network between the hosts has them.
func (f *Facts) intoOverlay(w RouteLookup, p lease.Record) bool {
	l, _ := f.Links.named(w.Link)
	return isFlannels(w.Link) || l.Alias == ownAlias || isOf(w.Gateway, p) ||
		f.Network.Facts().Controller && w.Link == f.Links.Underlay.Name
}

// inside is an address in a node's subnet that a pod could have.
func inside(r lease.Record) netip.Addr {
	if r.V4.IsValid() {
		return r.V4.Masked().Addr().Next()
	}
	return r.V6.Masked().Addr().Next()
}
