package aliroutes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// changer changes one route table. A call takes as many routes as it may, since a table that is being changed
// takes no other change for some seconds.
type changer struct {
	*Cloud
	t table.Table
}

var _ table.Bulk = changer{}

// entriesAtMost is how many routes are in a call. The API takes 50; so many fit into a URL of 8 KB, where it
// wants them.
const entriesAtMost = 10

// Most implements table.Bulk.
func (changer) Most() int { return entriesAtMost }

// failed are the routes of a call for which it did nothing.
type failed struct {
	FailedRouteEntries []struct {
		DstCidrBlock, FailedCode, FailedMessage string
		RouteEntryID                            string `json:"RouteEntryId"`
	}
}

// CreateAll implements table.Bulk.
func (c changer) CreateAll(ctx context.Context, want []table.Want) map[netip.Prefix]error {
	query := map[string]string{}
	for i, w := range want {
		at := "RouteEntries." + strconv.Itoa(i+1) + "."
		version := "4"
		if w.Dst.Addr().Is6() {
			version = "6"
		}
		for k, v := range map[string]string{"RouteTableId": c.t.ID, "DstCidrBlock": w.Dst.String(),
			"IpVersion": version, "NextHopType": "Instance", "NextHop": w.Target,
			"Name": "weft", "Description": c.description()} {
			query[at+k] = v
		}
	}
	faults, err := c.entries(ctx, "CreateRouteEntries", query)
	if err != nil && divisible(err) && len(want) > 1 { // it may be the fault of one of them
		return c.createHalves(ctx, want)
	}
	out := map[netip.Prefix]error{}
	for _, w := range want {
		fault := faults[w.Dst]
		if err != nil {
			fault = err
		}
		var r *refusal
		switch isRefusal := errors.As(fault, &r); {
		case fault == nil:
			c.o.Logger.Info("route begun", "table", c.t.ID, "subnet", w.Dst, "instance", w.Target)
		case isRefusal && r.exists(): // an answer was lost, or the read was of before
			out[w.Dst] = fmt.Errorf("the cloud says that it has the route, and shows it not yet: %w",
				routecontrol.ErrPending)
		case isRefusal && r.full():
			out[w.Dst] = fmt.Errorf("%w: it has %d routes of all kinds; Alibaba Cloud raises the quota of custom "+
				"routes when asked: %w", table.ErrFull, len(c.t.Have), fault)
		default:
			out[w.Dst] = fault
		}
	}
	return out
}

// slowed returns the error of a call after which the cloud wants no further one; nil if there is none.
func slowed(faults map[netip.Prefix]error) error {
	for _, err := range faults {
		if errors.Is(err, table.ErrSlow) {
			return err
		}
	}
	return nil
}

// createHalves makes two calls in place of one. A half without room fails in the second call too, and nothing
// more is tried once the cloud asks for fewer calls.
func (c changer) createHalves(ctx context.Context, want []table.Want) map[netip.Prefix]error {
	half := len(want) / 2
	faults := c.CreateAll(ctx, want[:half])
	without := map[bool]error{}
	if err := slowed(faults); err != nil {
		without[true], without[false] = err, err
	}
	for dst, err := range faults {
		if errors.Is(err, table.ErrFull) && without[dst.Addr().Is4()] == nil {
			without[dst.Addr().Is4()] = err
		}
	}
	var rest []table.Want
	for _, w := range want[half:] {
		if err := without[w.Dst.Addr().Is4()]; err != nil {
			faults[w.Dst] = err
			continue
		}
		rest = append(rest, w)
	}
	if len(rest) > 0 {
		maps.Copy(faults, c.CreateAll(ctx, rest))
	}
	return faults
}

// DeleteAll implements table.Bulk. Routes are named by their ids, so that one that somebody else has put in
// its place stays.
func (c changer) DeleteAll(ctx context.Context, routes []table.Route) map[netip.Prefix]error {
	query := map[string]string{}
	for i, r := range routes {
		at := "RouteEntries." + strconv.Itoa(i+1) + "."
		query[at+"RouteTableId"], query[at+"RouteEntryId"] = c.t.ID, r.Name
	}
	faults, err := c.entries(ctx, "DeleteRouteEntries", query)
	if err != nil && divisible(err) && len(routes) > 1 {
		half := len(routes) / 2
		faults = c.DeleteAll(ctx, routes[:half])
		if err := slowed(faults); err != nil {
			for _, x := range routes[half:] {
				faults[x.Dst] = err
			}
			return faults
		}
		maps.Copy(faults, c.DeleteAll(ctx, routes[half:]))
		return faults
	}
	out := map[netip.Prefix]error{}
	for _, x := range routes {
		fault := faults[x.Dst]
		if err != nil {
			fault = err
		}
		var r *refusal
		switch {
		case errors.As(fault, &r) && r.gone():
		case fault != nil:
			out[x.Dst] = fault
		default:
			c.o.Logger.Info("route's end begun", "table", c.t.ID, "subnet", x.Dst, "instance", x.Target)
		}
	}
	return out
}

// Create implements table.Changer.
func (c changer) Create(ctx context.Context, w table.Want) error {
	return c.CreateAll(ctx, []table.Want{w})[w.Dst]
}

// Delete implements table.Changer.
func (c changer) Delete(ctx context.Context, r table.Route) error {
	return c.DeleteAll(ctx, []table.Route{r})[r.Dst]
}

// Replace implements table.Changer. A table has one route to a destination, which gets another next hop.
func (c changer) Replace(ctx context.Context, r table.Replacement) error {
	var answer struct{}
	err := c.call(ctx, c.vpc, "ModifyRouteEntry",
		map[string]string{"RouteEntryId": r.Old[0].Name, "NewNextHopType": "Instance",
			"NewNextHopId": r.Want.Target}, &answer)
	var no *refusal
	switch {
	case errors.As(err, &no) && no.gone() && no.has("routeentry"): // it was deleted since it was read
		return fmt.Errorf("the route that it takes the place of is gone: %w", routecontrol.ErrPending)
	case err == nil:
		c.o.Logger.Info("route's change begun", "table", c.t.ID, "subnet", r.Want.Dst, "instance", r.Want.Target,
			"before", r.Old[0].Target)
	}
	return err
}

// entries makes a call for several routes, and returns by destination what it did not do; an error is of all
// of them.
func (c changer) entries(ctx context.Context, action string, query map[string]string) (map[netip.Prefix]error,
	error) {
	var answer failed
	if err := c.call(ctx, c.vpc, action, query, &answer); err != nil {
		return nil, err
	}
	byName := map[string]netip.Prefix{}
	for _, r := range c.t.Have {
		byName[r.Name] = r.Dst
	}
	out := map[netip.Prefix]error{}
	for _, f := range answer.FailedRouteEntries {
		dst, err := netip.ParsePrefix(f.DstCidrBlock)
		if err != nil {
			dst = byName[f.RouteEntryID]
		}
		r := &refusal{code: f.FailedCode, message: f.FailedMessage}
		err = fmt.Errorf("vpc:%s: %w", action, r)
		if r.busy() || r.throttled() {
			err = fmt.Errorf("%w: %w", err, table.ErrSlow)
		}
		out[dst.Masked()] = err
	}
	return out, nil
}

// divisible reports whether an error of several routes may be that of one of them.
func divisible(err error) bool {
	var r *refusal
	return errors.As(err, &r) && !r.forbidden() && !errors.Is(err, table.ErrSlow) && r.status < 500
}
