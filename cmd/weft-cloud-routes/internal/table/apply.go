package table

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft/routing/routecontrol"
)

// A Changer wraps these in its errors.
var (
	// ErrFull says that the table takes no more routes of that family.
	ErrFull = errors.New("the table is full")
	// ErrSlow says that the cloud asks for fewer calls, and still did after some patience.
	ErrSlow = errors.New("the cloud asks for fewer calls")
)

const (
	// applyAtMost is after how long no further call is begun.
	applyAtMost = 2 * time.Minute
	// outagesAtMost is how many calls in a row the cloud may not answer, or not be able to, before there is no
	// further one: each was tried several times.
	outagesAtMost = 2
)

// Changer changes one route of a table at a time. A change that is already in place is no error.
type Changer interface {
	Create(context.Context, Want) error
	Replace(context.Context, Replacement) error
	Delete(context.Context, Route) error
}

// Bulk creates and deletes several routes of a table with one call, at the most so many. It returns by
// destination what did not work.
type Bulk interface {
	Replace(context.Context, Replacement) error
	Most() int
	CreateAll(context.Context, []Want) map[netip.Prefix]error
	DeleteAll(context.Context, []Route) map[netip.Prefix]error
}

// Apply makes the changes of a plan, adding before it deletes, and returns by destination what did not work.
// It tries everything, but for what the table has no room for, which it tries once more after it has deleted
// something. Once the cloud asks for fewer calls, does not answer several in a row, or applyAtMost has
// passed, so that the plan may be of long ago, the rest is pending.
func Apply(ctx context.Context, b Bulk, p Plan) map[netip.Prefix]error {
	a := applier{reasons: map[netip.Prefix]error{}, until: time.Now().Add(applyAtMost)}
	return a.apply(ctx, b, p)
}

func (a *applier) apply(ctx context.Context, b Bulk, p Plan) map[netip.Prefix]error {
	a.creates(ctx, b, p.Create)
	for _, r := range p.Replace {
		a.do(ctx, []netip.Prefix{r.Want.Dst}, func() map[netip.Prefix]error {
			return one(r.Want.Dst, b.Replace(ctx, r))
		})
	}
	freed := false
	for some := range slices.Chunk(p.Delete, b.Most()) {
		dsts := make([]netip.Prefix, len(some))
		for i, r := range some {
			dsts[i] = r.Dst
		}
		freed = a.do(ctx, dsts, func() map[netip.Prefix]error { return b.DeleteAll(ctx, some) }) || freed
	}
	if full := a.full; len(full) > 0 && freed {
		a.full, a.without = nil, [2]bool{}
		a.creates(ctx, b, full)
	}
	return a.reasons
}

// Single makes a Changer a Bulk of one.
type Single struct{ Changer }

// Most implements Bulk.
func (s Single) Most() int { return 1 }

// CreateAll implements Bulk.
func (s Single) CreateAll(ctx context.Context, w []Want) map[netip.Prefix]error {
	return one(w[0].Dst, s.Create(ctx, w[0]))
}

// DeleteAll implements Bulk.
func (s Single) DeleteAll(ctx context.Context, r []Route) map[netip.Prefix]error {
	return one(r[0].Dst, s.Delete(ctx, r[0]))
}

func one(dst netip.Prefix, err error) map[netip.Prefix]error {
	if err == nil {
		return nil
	}
	return map[netip.Prefix]error{dst: err}
}

type applier struct {
	reasons map[netip.Prefix]error
	until   time.Time
	stop    error // not nil: no further call
	outages int   // in a row
	full    []Want
	without [2]bool // room for IPv4, for IPv6
}

func family(p netip.Prefix) int {
	if p.Addr().Is6() {
		return 1
	}
	return 0
}

func (a *applier) creates(ctx context.Context, b Bulk, want []Want) {
	for some := range slices.Chunk(want, b.Most()) {
		var now []Want
		var dsts []netip.Prefix
		for _, w := range some {
			if a.without[family(w.Dst)] {
				a.full = append(a.full, w)
				a.reasons[w.Dst] = ErrFull
				continue
			}
			delete(a.reasons, w.Dst)
			now, dsts = append(now, w), append(dsts, w.Dst)
		}
		if len(now) == 0 {
			continue
		}
		a.do(ctx, dsts, func() map[netip.Prefix]error { return b.CreateAll(ctx, now) })
		for _, w := range now {
			if errors.Is(a.reasons[w.Dst], ErrFull) {
				a.without[family(w.Dst)] = true
				a.full = append(a.full, w)
			}
		}
	}
}

// do makes one call, unless no more are to be made, and reports whether it worked for one of its
// destinations.
func (a *applier) do(ctx context.Context, dsts []netip.Prefix, call func() map[netip.Prefix]error) bool {
	if a.stop == nil && !time.Now().Before(a.until) {
		a.stop = fmt.Errorf("changes took longer than %v: %w", applyAtMost, routecontrol.ErrPending)
	}
	err := a.stop
	if err == nil {
		err = ctx.Err()
	}
	var faults map[netip.Prefix]error
	if err == nil {
		faults = call()
	}
	if err == nil {
		a.count(faults)
	}
	for _, dst := range dsts {
		fault := err
		if fault == nil {
			fault = faults[dst]
		}
		if errors.Is(fault, ErrSlow) && err == nil {
			fault = fmt.Errorf("%w: %w", fault, routecontrol.ErrPending)
			a.stop = fault
		}
		if fault != nil {
			a.reasons[dst] = fault
		}
	}
	return err == nil && len(faults) < len(dsts)
}

// count notes whether a call was an outage.
func (a *applier) count(faults map[netip.Prefix]error) {
	var o *outage
	for _, fault := range faults {
		if errors.As(fault, &o) {
			if a.outages++; a.outages >= outagesAtMost {
				a.stop = o
			}
			return
		}
	}
	a.outages = 0
}
