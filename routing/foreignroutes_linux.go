package routing

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// shadowWatch keeps what was found out about routes that shadow peers, since listing all routes costs much on
// a host that has many.
type shadowWatch struct {
	asked time.Time
	took  time.Duration
	notes []string
}

// shadowShare is after how many times as long as listing the routes took they are listed again, so that a host
// with a full table of the Internet spends no more than a hundredth of its time with it.
const shadowShare = 100

// shadows enters into the status, and logs, which routes of others take packets for peers out of the overlay.
// The monitor reports such a route when it comes.
func (c *Node) shadows(r *round) {
	w := &c.shadow
	if now := time.Now(); now.Sub(w.asked) >= shadowShare*w.took {
		before := w.notes
		w.asked, w.notes = now, c.findShadows()
		w.took = time.Since(now)
		for _, n := range w.notes {
			if !slices.Contains(before, n) {
				c.log.Warn("a foreign route shadows a peer", "note", n)
			}
		}
		if len(before) > 0 && len(w.notes) == 0 {
			c.log.Info("no foreign route shadows a peer any more")
		}
	}
	r.note(w.notes...)
}

func (c *Node) findShadows() []string {
	if len(c.set.Peers) == 0 || len(c.inPlace.Routes) == 0 {
		return nil
	}
	ds, err := c.k.Devices()
	if err != nil {
		return c.shadow.notes
	}
	names, mine := make(map[int]string, len(ds)), map[string]bool{}
	for _, d := range ds {
		if names[d.Index] = d.Name; d.Alias == kernel.Alias {
			mine[d.Name] = true
		}
	}
	there, err := c.k.MainRoutes(names)
	if err != nil {
		return c.shadow.notes // whoever reconciles says so
	}
	return shadowed(there, c.inPlace.Routes, mine, c.cfg.Network.Networks(), c.set)
}

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
