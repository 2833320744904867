package table

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"weft/routing/routecontrol"
)

// What a Changer says of a call, wrapped in its errors.
var (
	// ErrFull says that the table takes no more routes of that family.
	ErrFull = errors.New("the table is full")
	// ErrSlow says that the cloud asks for fewer calls, and still did after some patience.
	ErrSlow = errors.New("the cloud asks for fewer calls")
)

// Changer changes one table. What is so already is no error.
type Changer interface {
	Create(context.Context, Want) error
	Replace(context.Context, Replacement) error
	Delete(context.Context, Route) error
}

// Apply makes the changes of a plan, adding before it deletes, and returns by destination what did not work. It tries everything, but for what the table
// has no room for, which it tries once more after it has deleted something, and once the cloud asks for fewer calls: then the rest is pending.
func Apply(ctx context.Context, c Changer, p Plan) map[netip.Prefix]error {
	a := applier{reasons: map[netip.Prefix]error{}}
	a.creates(ctx, c, p.Create)
	for _, r := range p.Replace {
		a.do(ctx, r.Want.Dst, func() error { return c.Replace(ctx, r) })
	}
	freed := false
	for _, r := range p.Delete {
		freed = a.do(ctx, r.Dst, func() error { return c.Delete(ctx, r) }) || freed
	}
	if full := a.full; len(full) > 0 && freed {
		a.full, a.without = nil, [2]bool{}
		a.creates(ctx, c, full)
	}
	return a.reasons
}

type applier struct {
	reasons map[netip.Prefix]error
	slow    error // not nil: no further call
	full    []Want
	without [2]bool // room for IPv4, for IPv6
}

func (a *applier) creates(ctx context.Context, c Changer, want []Want) {
	for _, w := range want {
		family := 0
		if w.Dst.Addr().Is6() {
			family = 1
		}
		if a.without[family] {
			a.full = append(a.full, w)
			a.reasons[w.Dst] = ErrFull
			continue
		}
		delete(a.reasons, w.Dst)
		if a.do(ctx, w.Dst, func() error { return c.Create(ctx, w) }); errors.Is(a.reasons[w.Dst], ErrFull) {
			a.without[family] = true
			a.full = append(a.full, w)
		}
	}
}

// do makes one call, unless no more are to be made, and reports whether it worked.
func (a *applier) do(ctx context.Context, dst netip.Prefix, call func() error) bool {
	err := a.slow
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		if err = call(); errors.Is(err, ErrSlow) {
			err = fmt.Errorf("%w: %w", err, routecontrol.ErrPending)
			a.slow = err
		}
	}
	if err != nil {
		a.reasons[dst] = err
	}
	return err == nil
}
