package routecontrol

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"weft/routing/routehook"
)

// held is the latest view of one node.
type held struct {
	view    routehook.View
	etag    string
	expires time.Time
	// claimed is since when the node has said of each own subnet that it is its own.
	claimed map[netip.Prefix]time.Time
	round   <-chan struct{} // closed when the round that has it is over; nil for whichever comes
}

// wanted is one route that a view asks for, and since when its owner claims it.
type wanted struct {
	route routehook.Route
	since time.Time
}

// merge makes one set of routes out of the views that live at now. A node's word on its own subnets counts
// more than others', which may have heard of a change late, or of a node's end not at all. Of two that claim
// the same, or subnets that overlap, the one counts that came last: leases are given again when their time is
// over, and not before.
func merge(views map[string]*held, now time.Time) *merged {
	var claims []wanted
	nodes := make([]string, 0, len(views))
	for n, h := range views {
		if now.Before(h.expires) {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		for _, r := range views[n].view.Routes {
			if r.Own {
				claims = append(claims, wanted{r, views[n].claimed[r.Subnet]})
			}
		}
	}
	// the last claim first
	slices.SortStableFunc(claims, func(a, b wanted) int { return b.since.Compare(a.since) })
	out := &merged{}
	for _, w := range claims {
		out.add(w)
	}
	// who spoke last knows most
	slices.SortFunc(nodes, func(a, b string) int { return views[b].expires.Compare(views[a].expires) })
	for _, n := range nodes {
		for _, r := range views[n].view.Routes {
			if !r.Own {
				out.add(wanted{route: r})
			}
		}
	}
	return out
}

// merged is the set. No two of its subnets overlap.
type merged struct {
	routes   []routehook.Route
	bySubnet bart.Table[int] // indexes into routes
}

// add takes w unless it overlaps what is there.
func (m *merged) add(w wanted) {
	if !m.bySubnet.OverlapsPrefix(w.route.Subnet) {
		m.bySubnet.Insert(w.route.Subnet, len(m.routes))
		m.routes = append(m.routes, w.route)
	}
}

// over returns the route that overlaps p.
func (m *merged) over(p netip.Prefix) (routehook.Route, bool) {
	if i, ok := m.bySubnet.LookupPrefix(p); ok {
		return m.routes[i], true
	}
	for _, i := range m.bySubnet.Subnets(p) {
		return m.routes[i], true
	}
	return routehook.Route{}, false
}

// placed is what the last round that got an answer says of one subnet: for which next hop, and why it is not
// in place; nil if it is.
type placed struct {
	hop netip.Addr
	err error
}

// judge says what became of each route of a view: all is what is wanted of everybody, and places what of it
// the last round found. A route that no round has seen yet is pending.
func judge(v routehook.View, all *merged, places map[netip.Prefix]placed) routehook.Answer {
	a := routehook.Answer{SchemaVersion: routehook.Schema, Instance: v.Instance, Generation: v.Generation,
		Routes: []routehook.Verdict{}}
	for _, r := range v.Routes {
		verdict := routehook.Verdict{Subnet: r.Subnet, State: routehook.Accepted}
		say := func(s routehook.State, format string, args ...any) {
			verdict.State, verdict.Reason = s, fmt.Sprintf(format, args...)
		}
		o, ok := all.over(r.Subnet)
		p, tried := places[r.Subnet]
		switch {
		case !ok:
			say(routehook.Refused, "nobody's view that counts has it")
		case o.Subnet != r.Subnet || o.NextHop != r.NextHop:
			say(routehook.Refused, "%v is routed to %v, which node %s (%q) says is its own", o.Subnet, o.NextHop,
				o.Name, o.Node)
		case !tried || p.hop != r.NextHop:
			say(routehook.Pending, "it is being put in place")
		case errors.Is(p.err, ErrPending):
			say(routehook.Pending, "%s", why(p.err))
		case p.err != nil:
			say(routehook.Refused, "%v", p.err)
		}
		a.Routes = append(a.Routes, verdict)
	}
	return a
}
