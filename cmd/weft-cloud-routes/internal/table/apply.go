package table

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weft/routing/routecontrol"
)

const (
	// applyAtMost is after how long no further call is begun: the plan is of long ago.
	applyAtMost = 2 * time.Minute
	// outagesAtMost is how many calls in a row may fail before there is no further one: each was tried several
	// times.
	outagesAtMost = 2
)

// Changer changes one route of a table at a time. A change that is already in place is no error.
type Changer interface {
	Create(context.Context, Want) error
	// Replace may leave the old route there: it is deleted once the new one is seen.
	Replace(context.Context, Replacement) error
	Delete(context.Context, Route) error
}

// Apply makes the changes of a plan, adding before it deletes, and returns by destination what did not work.
// It tries everything, but for routes of a family that had no room for an earlier one. Once the cloud asks
// for patience, does not answer several calls in a row, or applyAtMost has passed, the rest is pending.
func (o Options) Apply(ctx context.Context, t Table, c Changer, p Plan) map[netip.Prefix]error {
	a := applier{reasons: map[netip.Prefix]error{}, until: time.Now().Add(applyAtMost)}
	log := o.Logger.With("table", t.ID)
	full := map[bool]bool{} // by whether the family is IPv4
	for _, w := range p.Create {
		if full[w.Dst.Addr().Is4()] {
			a.reasons[w.Dst] = ErrFull
			continue
		}
		switch err := a.do(ctx, w.Dst, func() error { return c.Create(ctx, w) }); {
		case err == nil:
			log.Info("route created", "subnet", w.Dst, "target", w.Target)
		case errors.Is(err, ErrFull):
			full[w.Dst.Addr().Is4()] = true
		}
	}
	for _, r := range p.Replace {
		if a.do(ctx, r.Want.Dst, func() error { return c.Replace(ctx, r) }) == nil {
			log.Info("route replaced", "subnet", r.Want.Dst, "target", r.Want.Target, "before", r.Old.Target)
		}
	}
	for _, r := range p.Delete {
		if a.do(ctx, r.Dst, func() error { return c.Delete(ctx, r) }) == nil {
			log.Info("route deleted", "subnet", r.Dst, "target", r.Target)
		}
	}
	return a.reasons
}

type applier struct {
	reasons map[netip.Prefix]error
	until   time.Time
	stop    error // not nil: no further call
	outages int   // in a row
}

// do makes one call, unless no more are to be made.
func (a *applier) do(ctx context.Context, dst netip.Prefix, call func() error) error {
	switch {
	case a.stop != nil:
	case ctx.Err() != nil:
		a.stop = ctx.Err()
	case !time.Now().Before(a.until):
		a.stop = fmt.Errorf("changes took longer than %v: %w", applyAtMost, routecontrol.ErrPending)
	}
	err := a.stop
	if err == nil {
		if err = call(); errors.Is(err, ErrDown) {
			a.outages++
		} else {
			a.outages = 0
		}
		if errors.Is(err, ErrSlow) || a.outages >= outagesAtMost {
			a.stop = err
		}
	}
	if err != nil {
		a.reasons[dst] = err
	}
	return err
}
