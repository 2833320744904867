package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

// Table is one that is programmed.
type Table struct {
	// ID is what people know it by; "" if there is only one.
	ID   string
	Have []Route
}

// Cloud is what a round asks of a cloud, whose instances were read when the round began.
type Cloud interface {
	// Inside reports whether a destination may be one of ours: what is not would not be known for ours when it
	// is there.
	Inside(dst netip.Prefix) bool
	// Target is where packets for a next hop are sent, as Want.Target. An error says why there is nothing.
	Target(hop netip.Addr) (string, error)
	// Ready has targets forward packets of others, and returns by target why one does not.
	Ready(ctx context.Context, want []Want) map[string]error
	// Tables reads the tables, at least one, and always in the same order.
	Tables(ctx context.Context) ([]Table, error)
	// Change makes the changes of a plan, and returns by destination what did not work.
	Change(ctx context.Context, t Table, p Plan) map[netip.Prefix]error
}

// Step is a part of a plan. The tables are read before each one, and after the last one.
type Step func(Plan) Plan

// All is a whole plan: for a cloud that can change the target of a route.
func All(p Plan) Plan { return p }

// Additions are what is to come, and Deletions what is to go: for a cloud in which a route has to be seen
// before the one whose place it takes is deleted.
func Additions(p Plan) Plan { return Plan{Create: p.Create, Replace: p.Replace} }

// Deletions are the other part of Additions.
func Deletions(p Plan) Plan { return Plan{Delete: p.Delete} }

func (p Plan) empty() bool { return len(p.Create)+len(p.Replace)+len(p.Delete) == 0 }

// Round is routecontrol.Programmer's Program. look reads the instances of a cloud.
func Round[C Cloud](ctx context.Context, look func(context.Context) (C, error), routes []routehook.Route,
	keep bool, steps ...Step) (map[netip.Prefix]error, error) {
	c, err := look(ctx)
	if err != nil {
		return nil, PendingIfSlow(err)
	}
	tables, err := c.Tables(ctx)
	if err != nil {
		return nil, PendingIfSlow(err)
	}
	r := round{faults: map[netip.Prefix]error{}, reasons: map[string]map[netip.Prefix]error{}}
	r.targets(ctx, c, routes)
	for n, step := range steps {
		changed := false
		for _, t := range tables {
			p := step(Make(t.Have, r.want, keep))
			if p.empty() {
				continue
			}
			changed = true
			r.freed = r.freed || n > 0 && len(p.Delete) > 0
			r.note(t.ID, c.Change(ctx, t, p))
		}
		if !changed {
			continue
		}
		if tables, err = again(ctx, c, tables); err != nil {
			return nil, PendingIfSlow(err)
		}
	}
	r.judge(tables)
	return r.faults, nil
}

// round is one, while it is made.
type round struct {
	want   []Want
	faults map[netip.Prefix]error
	// reasons has what did not work in each table.
	reasons map[string]map[netip.Prefix]error
	// freed says that something was deleted after something else was created, which may have room in the next
	// round.
	freed bool
}

// targets finds where each route is to lead. One that cannot lead anywhere has a fault, and no target, so
// that what there is stays.
func (r *round) targets(ctx context.Context, c Cloud, routes []routehook.Route) {
	for _, x := range routes {
		target, err := c.Target(x.NextHop)
		if !c.Inside(x.Subnet) {
			err = errors.New("it is no part of one of --networks: a route to all of one is nobody's subnet, and " +
				"would not be known for ours")
		}
		if err != nil {
			target, r.faults[x.Subnet] = "", err
		}
		r.want = append(r.want, Want{x.Subnet, target})
	}
	for target, err := range c.Ready(ctx, r.want) {
		for i, w := range r.want {
			if w.Target == target {
				r.want[i].Target, r.faults[w.Dst] = "", err // who drops what is not for itself is no way to pods
			}
		}
	}
}

// note keeps what did not work. The first word on a destination stands: it concerns a route to make, which
// matters more than one to remove.
func (r *round) note(table string, reasons map[netip.Prefix]error) {
	all := maps.Clone(reasons)
	if all == nil {
		all = map[netip.Prefix]error{}
	}
	maps.Copy(all, r.reasons[table])
	r.reasons[table] = all
}

func (r *round) judge(tables []Table) {
	wanted := map[netip.Prefix]bool{}
	for _, w := range r.want {
		wanted[w.Dst] = true
	}
	for _, t := range tables {
		for dst, err := range Judge(t.Have, r.want, r.reasons[t.ID]) {
			if errors.Is(err, ErrFull) && r.freed {
				err = fmt.Errorf("%w, and others make room: %w", err, routecontrol.ErrPending)
			}
			r.faults[dst] = join(r.faults[dst], in(t, err))
		}
		for dst, err := range r.reasons[t.ID] {
			if !wanted[dst] && r.faults[dst] == nil {
				r.faults[dst] = in(t, fmt.Errorf("it stays: %w", err))
			}
		}
	}
}

// in says of an error in which table it was.
func in(t Table, err error) error {
	if t.ID == "" {
		return err
	}
	return fmt.Errorf("%s: %w", t.ID, err)
}

// again reads the tables once more.
func again(ctx context.Context, c Cloud, before []Table) ([]Table, error) {
	now, err := c.Tables(ctx)
	if err != nil {
		return nil, err
	}
	have := map[string][]Route{}
	for _, t := range now {
		have[t.ID] = t.Have
	}
	out := make([]Table, len(before))
	for i, t := range before {
		out[i] = Table{t.ID, have[t.ID]} // of one that lost its mark meanwhile nothing is known
	}
	return out, nil
}

// join is what is said of a route that two tables have something to say of: whoever has to mend something
// hears of that first.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case errors.Is(a, routecontrol.ErrPending) && !errors.Is(b, routecontrol.ErrPending):
		return b
	}
	return a
}

// PendingIfSlow marks an error as one that passes by itself.
func PendingIfSlow(err error) error {
	if errors.Is(err, ErrSlow) {
		return fmt.Errorf("%w: %w", err, routecontrol.ErrPending)
	}
	return err
}
