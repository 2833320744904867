package ec2routes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

var _ routecontrol.Programmer = (*Cloud)(nil)

// Program implements routecontrol.Programmer.
func (c *Cloud) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error, error) {
	f, err := c.fleet(ctx)
	if err != nil {
		return nil, pendingIfSlow(err)
	}
	tables, err := c.tables(ctx, f)
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
	for nic, err := range c.openSources(ctx, want, f) {
		for i, w := range want {
			if w.Target == nic {
				want[i].Target, faults[w.Dst] = "", err // who drops what is not for itself is no way to pods
			}
		}
	}
	changed, reasons := false, make([]map[netip.Prefix]error, len(tables))
	for i, t := range tables {
		plan := table.Make(t.have, want, keep)
		if len(plan.Create)+len(plan.Replace)+len(plan.Delete) > 0 {
			changed = true
			reasons[i] = table.Apply(ctx, changer{c, t}, plan)
		}
	}
	if changed {
		if tables, err = c.readAgain(ctx, tables, f); err != nil {
			return nil, pendingIfSlow(err)
		}
	}
	for i, t := range tables {
		for dst, err := range table.Judge(t.have, want, reasons[i]) {
			faults[dst] = joinFault(faults[dst], fmt.Errorf("%s: %w", t.id, err))
		}
		for dst, err := range reasons[i] { // of routes to be deleted
			if _, known := faults[dst]; !known && !wanted(want, dst) {
				faults[dst] = fmt.Errorf("%s: it stays: %w", t.id, err)
			}
		}
	}
	return faults, nil
}

// want is what a route takes. An error says why it cannot be had; its target is then "", so that what there is stays.
func (c *Cloud) want(r routehook.Route, f fleet) (table.Want, error) {
	n, ok := f.byAddr[r.NextHop]
	if !ok {
		return table.Want{Dst: r.Subnet}, fmt.Errorf("no instance of %s with the tag %s has the address %v", c.o.VPC, c.o.Tag, r.NextHop)
	}
	if n.checked && c.o.KeepSourceCheck {
		return table.Want{Dst: r.Subnet}, fmt.Errorf("the source/destination check of %s (%s) is on, and --keep-source-check forbids to switch it off", n.instance, n.id)
	}
	return table.Want{Dst: r.Subnet, Target: n.id}, nil
}

// openSources switches the source/destination check off at the interfaces that are wanted as targets, and returns by interface what did not work.
func (c *Cloud) openSources(ctx context.Context, want []table.Want, f fleet) map[string]error {
	faults, checked := map[string]error{}, map[string]nic{}
	for _, n := range f.byAddr {
		if n.checked {
			checked[n.id] = n
		}
	}
	for _, w := range want {
		n, on := checked[w.Target]
		if !on {
			continue
		}
		delete(checked, w.Target) // an interface may have the routes of both families
		_, err := c.client.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: aws.String(n.id), SourceDestCheck: &types.AttributeBooleanValue{Value: aws.Bool(false)},
		})
		if err = c.called("ModifyNetworkInterfaceAttribute", err); err != nil {
			faults[n.id] = fmt.Errorf("the source/destination check of %s (%s) is on, and stays: %w", n.instance, n.id, pendingIfSlow(err))
			continue
		}
		c.o.Logger.Info("source/destination check switched off", "instance", n.instance, "interface", n.id)
	}
	return faults
}

// readAgain reads the tables once more, in the same order.
func (c *Cloud) readAgain(ctx context.Context, before []routeTable, f fleet) ([]routeTable, error) {
	now, err := c.tables(ctx, f)
	if err != nil {
		return nil, err
	}
	byID := map[string]routeTable{}
	for _, t := range now {
		byID[t.id] = t
	}
	out := make([]routeTable, len(before))
	for i, t := range before {
		out[i] = routeTable{t.id, byID[t.id].have} // of one that lost its tag meanwhile nothing is known
	}
	return out, nil
}

func wanted(want []table.Want, dst netip.Prefix) bool {
	for _, w := range want {
		if w.Dst == dst {
			return true
		}
	}
	return false
}

// joinFault is what is said of a route that two tables have something to say of: whoever has to mend something hears of that first.
func joinFault(a, b error) error {
	switch {
	case a == nil:
		return b
	case errors.Is(a, routecontrol.ErrPending) && !errors.Is(b, routecontrol.ErrPending):
		return b
	}
	return a
}

// pendingIfSlow marks an error as one that passes by itself.
func pendingIfSlow(err error) error {
	if errors.Is(err, table.ErrSlow) {
		return fmt.Errorf("%w: %w", err, routecontrol.ErrPending)
	}
	return err
}
