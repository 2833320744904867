package routing

import (
	"fmt"
	"net/netip"
	"slices"

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
	var best bestRoutes // of ours; made for the first route that is somebody else's
	for _, r := range there {
		foreign := r.Protocol != kernel.RouteProtocol && !mine[r.Link] && !liesIn(r.Dst, set.Own.V4) &&
			!liesIn(r.Dst, set.Own.V6) &&
			slices.ContainsFunc(networks, func(n netip.Prefix) bool { return liesIn(r.Dst, n) })
		if !foreign || slices.ContainsFunc(ours, func(o kernel.Route) bool { return o == r }) {
			continue
		}
		if best.of == nil {
			best = newBestRoutes(ours)
		}
		var first *lease.Record
		n := 0
		for i := range set.Peers {
			if p := &set.Peers[i]; best.beatenBy(r, p.V4) || best.beatenBy(r, p.V6) {
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

// bestRoutes finds the longest of many routes that a subnet lies in, by a look for each length that there is.
type bestRoutes struct {
	of      map[netip.Prefix]kernel.Route
	lengths []int // the longest first
}

// newBestRoutes takes of several routes to one prefix the first.
func newBestRoutes(l []kernel.Route) bestRoutes {
	b := bestRoutes{of: make(map[netip.Prefix]kernel.Route, len(l))}
	for _, r := range l {
		if _, there := b.of[r.Dst]; !there {
			b.of[r.Dst] = r
		}
		if !slices.Contains(b.lengths, r.Dst.Bits()) {
			b.lengths = append(b.lengths, r.Dst.Bits())
		}
	}
	slices.SortFunc(b.lengths, func(x, y int) int { return y - x })
	return b
}

// beatenBy reports whether the kernel prefers r to these routes for packets to some of subnet.
func (b bestRoutes) beatenBy(r kernel.Route, subnet netip.Prefix) bool {
	if !subnet.IsValid() || !r.Dst.Overlaps(subnet) {
		return false
	}
	for _, bits := range b.lengths {
		if bits > subnet.Bits() {
			continue
		}
		if best, found := b.of[netip.PrefixFrom(subnet.Addr(), bits).Masked()]; found {
			return r.Dst.Bits() > best.Dst.Bits() || r.Dst == best.Dst && r.Metric < best.Metric
		}
	}
	return false
}
