// Package table programs the route tables of any cloud. What it knows of clouds is that they have routes of
// others beside ours, that a table can be full, that they ask callers to slow down, and that a change may be
// made although its answer was lost, and be shown late. So the verdict about a route is what a later read of
// the table shows, and what a call answered is only the reason if the route is not there.
//
//	have, want ─Make─> Plan ─Apply─> calls;  have once more ─Judge─> verdicts
//
// options.go makes calls, plan.go has Make and Judge, apply.go makes a plan's changes, round.go is a round.
package table

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"weft/routing/routecontrol"
)

// Route is one that a table has.
type Route struct {
	Dst netip.Prefix
	// Target is what packets are sent to, in the cloud's own words: the form of Want.Target if a route of ours
	// could have it.
	Target string
	// Name is the cloud's for the route; "" where routes have none.
	Name string
	// Ours says that it has our marks, so that it may be changed.
	Ours bool
	// Down says that the cloud drops what the route is for: its target is gone, or stopped.
	Down bool
	// Busy says that the cloud is still at work on it: until it has done that, it cannot be counted on, or
	// changed.
	Busy bool
}

// Want is a route that the table should have.
type Want struct {
	Dst netip.Prefix
	// Target is "" if it cannot be said now: whatever there is stays.
	Target string
}

// Plan is what is to be changed.
type Plan struct {
	Create  []Want
	Replace []Replacement
	Delete  []Route
}

// Replacement has a route of ours that Want takes the place of.
type Replacement struct {
	Old  Route
	Want Want
}

func (p Plan) empty() bool { return len(p.Create)+len(p.Replace)+len(p.Delete) == 0 }

// after is what of p, made after first was, is to be done in the same round: first replaced routes that are
// still there, and deleted some, which may be room for those that had none.
func (p Plan) after(first Plan, reasons map[netip.Prefix]error) (out Plan) {
	for _, r := range p.Delete {
		if slices.ContainsFunc(first.Replace, func(x Replacement) bool { return x.Want.Dst == r.Dst }) {
			out.Delete = append(out.Delete, r)
		}
	}
	for _, w := range p.Create {
		if len(first.Delete) > 0 && errors.Is(reasons[w.Dst], ErrFull) {
			out.Create = append(out.Create, w)
		}
	}
	return out
}

// Make returns what makes a table of have one of want, no two of which have one destination. With keep
// nothing is deleted. A route of somebody else's is neither changed nor shadowed. The plan is in the order of
// destinations.
func Make(have []Route, want []Want, keep bool) Plan {
	ours, foreign := split(have)
	var p Plan
	wanted := map[netip.Prefix]bool{}
	for _, w := range want {
		wanted[w.Dst] = true
		there := ours[w.Dst]
		switch {
		case w.Target == "" || foreign[w.Dst] != nil || busy(there):
		case len(there) == 0:
			p.Create = append(p.Create, w)
		default:
			right := slices.IndexFunc(there, func(r Route) bool { return r.Target == w.Target })
			if right < 0 {
				p.Replace = append(p.Replace, Replacement{there[0], w})
				continue
			}
			// of ours: two with one destination share its packets
			p.Delete = append(p.Delete, slices.Delete(slices.Clone(there), right, right+1)...)
		}
	}
	for dst, rs := range ours {
		if !wanted[dst] && !keep && !busy(rs) {
			p.Delete = append(p.Delete, rs...)
		}
	}
	slices.SortFunc(p.Create, func(a, b Want) int { return a.Dst.Compare(b.Dst) })
	slices.SortFunc(p.Replace, func(a, b Replacement) int { return a.Want.Dst.Compare(b.Want.Dst) })
	slices.SortFunc(p.Delete, func(a, b Route) int { return a.Dst.Compare(b.Dst) })
	return p
}

// busy reports whether the cloud is at work on one of routes with one destination. Then nothing is changed
// there: it would be refused.
func busy(routes []Route) bool {
	return slices.ContainsFunc(routes, func(r Route) bool { return r.Busy })
}

func split(have []Route) (ours, foreign map[netip.Prefix][]Route) {
	ours, foreign = map[netip.Prefix][]Route{}, map[netip.Prefix][]Route{}
	for _, r := range have {
		if r.Ours {
			ours[r.Dst] = append(ours[r.Dst], r)
		} else {
			foreign[r.Dst] = append(foreign[r.Dst], r)
		}
	}
	return ours, foreign
}

// Judge says of each route that is wanted, and has a target, why it is not in place in a table of have, and
// of others why they stay; one that is in place is not mentioned. reasons is what came of the changes made
// before have was read.
func Judge(have []Route, want []Want, reasons map[netip.Prefix]error) map[netip.Prefix]error {
	ours, foreign := split(have)
	var others bart.Lite
	for dst := range foreign {
		others.Insert(dst)
	}
	faults := map[netip.Prefix]error{}
	for dst, err := range reasons {
		faults[dst] = fmt.Errorf("it stays: %w", err)
	}
	for _, w := range want {
		delete(faults, w.Dst)
		if w.Target == "" {
			continue
		}
		if f := foreign[w.Dst]; f != nil {
			faults[w.Dst] = fmt.Errorf("somebody else's route to %v, by %s, is in the way", w.Dst, f[0].Target)
			continue
		}
		i := slices.IndexFunc(ours[w.Dst], func(r Route) bool { return r.Target == w.Target })
		switch {
		case busy(ours[w.Dst]):
			faults[w.Dst] = fmt.Errorf("the cloud is still at work on it: %w", routecontrol.ErrPending)
		case i < 0 && reasons[w.Dst] != nil:
			faults[w.Dst] = reasons[w.Dst]
		case i < 0:
			faults[w.Dst] = fmt.Errorf("the cloud took it and shows it not yet: %w", routecontrol.ErrPending)
		case ours[w.Dst][i].Down:
			faults[w.Dst] = fmt.Errorf("the table has it, and the cloud drops its packets: does %s run?", w.Target)
		default:
			for narrower := range others.Subnets(w.Dst) {
				faults[w.Dst] = fmt.Errorf("somebody else's route to %v, by %s, takes a part of it", narrower,
					foreign[narrower][0].Target)
				break
			}
		}
	}
	return faults
}
