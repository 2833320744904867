package gceroutes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

var _ routecontrol.Programmer = (*Cloud)(nil)

// Program implements routecontrol.Programmer. A route cannot be changed, only made anew under another name: the new one is there before the old one goes.
func (c *Cloud) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error, error) {
	f, err := c.fleet(ctx)
	if err != nil {
		return nil, pendingIfSlow(err)
	}
	faults, want := map[netip.Prefix]error{}, make([]table.Want, 0, len(routes))
	for _, r := range routes {
		w, err := c.want(r, f)
		if err != nil {
			faults[r.Subnet] = err
		}
		want = append(want, w)
	}
	have, err := c.routes(ctx)
	if err != nil {
		return nil, pendingIfSlow(err)
	}
	plan := table.Make(have, want, keep)
	first := table.Plan{Create: plan.Create}
	for _, r := range plan.Replace {
		first.Create = append(first.Create, r.Want)
	}
	have, reasons, err := c.apply(ctx, first, have)
	if err != nil {
		return nil, pendingIfSlow(err)
	}
	have, left, err := c.apply(ctx, table.Plan{Delete: table.Make(have, want, keep).Delete}, have)
	if err != nil {
		return nil, pendingIfSlow(err)
	}
	freed := len(plan.Delete) > 0
	for dst, err := range table.Judge(have, want, reasons) {
		if errors.Is(err, table.ErrFull) && freed {
			err = fmt.Errorf("%w, and others make room: %w", err, routecontrol.ErrPending)
		}
		faults[dst] = err
	}
	for dst, err := range left {
		if _, known := faults[dst]; !known && !slices.ContainsFunc(want, func(w table.Want) bool { return w.Dst == dst }) {
			faults[dst] = fmt.Errorf("it stays: %w", err)
		}
	}
	return faults, nil
}

// want is what a route takes. An error says why it cannot be had; its target is then "", so that what there is stays.
func (c *Cloud) want(r routehook.Route, f map[netip.Addr]instance) (table.Want, error) {
	i, ok := f[r.NextHop]
	switch {
	case !ok:
		return table.Want{Dst: r.Subnet}, fmt.Errorf("no instance of project %s with the label %s has the address %v in network %s", c.o.Project, c.o.Label, r.NextHop, c.o.Network)
	case !i.forwards:
		return table.Want{Dst: r.Subnet}, fmt.Errorf("%s may not forward packets of others: it has to be created with --can-ip-forward, which takes effect for a stopped instance only", i.link)
	}
	return table.Want{Dst: r.Subnet, Target: i.link}, nil
}

// apply makes a plan's changes, waits for them, and returns what there is then: have, if there was nothing to change.
func (c *Cloud) apply(ctx context.Context, p table.Plan, have []table.Route) ([]table.Route, map[netip.Prefix]error, error) {
	if len(p.Create)+len(p.Delete) == 0 {
		return have, nil, nil
	}
	ch := &changer{Cloud: c, begun: map[netip.Prefix]operation{}}
	reasons := table.Apply(ctx, ch, p)
	ch.finish(ctx, reasons)
	have, err := c.routes(ctx)
	return have, reasons, err
}

// pendingIfSlow marks an error as one that passes by itself.
func pendingIfSlow(err error) error {
	if errors.Is(err, table.ErrSlow) {
		return fmt.Errorf("%w: %w", err, routecontrol.ErrPending)
	}
	return err
}
