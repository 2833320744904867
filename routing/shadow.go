package routing

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// shadowed are the peers that a route of somebody else's takes packets from, as sentences for the operator:
// it lies within the overlay, and wins over ours to the peer. there are all routes of the main table, ours
// those that we want, and mine our devices. Routes to this node's own subnet are those of its pods. It is
// pure.
func shadowed(there, ours []kernel.Route, mine map[string]bool, networks []netip.Prefix,
	set lease.Set) []string {
	var notes []string
	var best *bart.Table[kernel.Route] // ours; made for the first route that is somebody else's
	for _, r := range there {
		foreign := r.Protocol != kernel.RouteProtocol && !mine[r.Link] && !liesIn(r.Dst, set.Own.V4) &&
			!liesIn(r.Dst, set.Own.V6) &&
			slices.ContainsFunc(networks, func(n netip.Prefix) bool { return liesIn(r.Dst, n) })
		if !foreign {
			continue
		}
		if best == nil {
			best = routeTable(ours)
		}
		var first *lease.Record
		n := 0
		for i := range set.Peers {
			if p := &set.Peers[i]; beats(r, best, p.V4) || beats(r, best, p.V6) {
				if n++; first == nil {
					first = p
				}
			}
		}
		if n == 0 {
			continue
		}
		via, others := r.Link, ""
		if r.Gateway.IsValid() {
			via = fmt.Sprintf("%v on %s", r.Gateway, r.Link)
		}
		if n > 1 {
			others = fmt.Sprintf(" and %d others", n-1)
		}
		notes = append(notes, fmt.Sprintf("the route %v via %s is not weft's, and takes packets for %s (%s)%s "+
			"out of the overlay: ip route del %v dev %s, and stop what made it",
			r.Dst, via, first.Called(), first.Subnets, others, r.Dst, r.Link))
	}
	return notes
}

func liesIn(p, q netip.Prefix) bool {
	return q.IsValid() && p.Bits() >= q.Bits() && q.Contains(p.Addr())
}

// routeTable has of several routes to one prefix the first.
func routeTable(routes []kernel.Route) *bart.Table[kernel.Route] {
	t := &bart.Table[kernel.Route]{}
	for _, r := range routes {
		if _, there := t.Get(r.Dst); !there {
			t.Insert(r.Dst, r)
		}
	}
	return t
}

// beats reports whether the kernel prefers r to those routes for packets to some of subnet.
func beats(r kernel.Route, routes *bart.Table[kernel.Route], subnet netip.Prefix) bool {
	if !subnet.IsValid() || !r.Dst.Overlaps(subnet) {
		return false
	}
	best, found := routes.LookupPrefix(subnet)
	return found && (r.Dst.Bits() > best.Dst.Bits() || r.Dst == best.Dst && r.Metric < best.Metric)
}
