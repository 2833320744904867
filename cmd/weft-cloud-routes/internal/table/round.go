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
	// ID is what people know it by.
	ID   string
	Have []Route
	// IPv4 and IPv6 count its routes of each family, others' included.
	IPv4, IPv6 int
}

// Count counts a route.
func (t *Table) Count(dst netip.Prefix) {
	if dst.Addr().Is4() {
		t.IPv4++
	} else {
		t.IPv6++
	}
}

// View is a cloud in one round, whose instances were read when the round began.
type View interface {
	// Target is where packets for a next hop are sent, as Want.Target. It has that forward packets of others, if
	// the cloud has a switch for it. An error says why there is nothing.
	Target(ctx context.Context, hop netip.Addr) (string, error)
	// Tables reads the tables, at least one, and always in the same order.
	Tables(context.Context) ([]Table, error)
	// Change makes the changes of a plan, and returns by destination what did not work.
	Change(ctx context.Context, t Table, p Plan) map[netip.Prefix]error
}

// Programmer programs the tables of a cloud. It implements routecontrol.Programmer.
type Programmer struct {
	Options
	// Look reads the instances of the cloud.
	Look func(context.Context) (View, error)
}

// Program makes a round. The tables are read before and after each of its two passes; the second one deletes
// what the first one made another route in place of, and makes what had no room before something was deleted.
func (p Programmer) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	v, err := p.Look(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := p.read(ctx, v)
	if err != nil {
		return nil, err
	}
	want, faults := p.targets(ctx, v, routes)
	first, reasons := map[string]Plan{}, map[string]map[netip.Prefix]error{}
	for pass := range 2 {
		changed := false
		for _, t := range tables {
			plan := Make(t.Have, want, keep)
			if pass == 0 {
				first[t.ID], reasons[t.ID] = plan, map[netip.Prefix]error{}
			} else {
				plan = plan.after(first[t.ID], reasons[t.ID])
			}
			if plan.empty() {
				continue
			}
			changed = true
			for _, w := range plan.Create {
				delete(reasons[t.ID], w.Dst)
			}
			maps.Copy(reasons[t.ID], v.Change(ctx, t, plan))
		}
		if !changed {
			break
		}
		if tables, err = p.read(ctx, v); err != nil {
			return nil, err
		}
	}
	for _, t := range tables {
		for dst, err := range Judge(t.Have, want, reasons[t.ID]) {
			// of two tables, that one counts in which somebody has to mend something
			if old := faults[dst]; old == nil || errors.Is(old, routecontrol.ErrPending) {
				faults[dst] = fmt.Errorf("%s: %w", t.ID, err)
			}
		}
	}
	if p.Sized != nil {
		p.Sized(tables)
	}
	return faults, nil
}

// read reads the tables. What is not inside of the overlay's networks is not ours, whatever its marks.
func (p Programmer) read(ctx context.Context, v View) ([]Table, error) {
	tables, err := v.Tables(ctx)
	for _, t := range tables {
		for i := range t.Have {
			t.Have[i].Ours = t.Have[i].Ours && p.Inside(t.Have[i].Dst)
		}
	}
	return tables, err
}

// targets finds where each route is to lead. One that cannot lead anywhere has a fault, and no target, so
// that what there is stays.
func (p Programmer) targets(ctx context.Context, v View, routes []routehook.Route) (want []Want,
	faults map[netip.Prefix]error) {
	faults = map[netip.Prefix]error{}
	for _, x := range routes {
		target, err := "", errors.New("it is no part of one of --networks: a route to all of one is nobody's "+
			"subnet, and would not be known for ours")
		if p.Inside(x.Subnet) {
			target, err = v.Target(ctx, x.NextHop)
		}
		if err != nil {
			target, faults[x.Subnet] = "", err
		}
		want = append(want, Want{x.Subnet, target})
	}
	return want, faults
}
