package aliroutes

import (
	"context"
	"errors"
	"fmt"
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
	faults := each(want, func(w table.Want) netip.Prefix { return w.Dst },
		func(some []table.Want) (map[netip.Prefix]error, error) {
			query := map[string]string{}
			for i, w := range some {
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
			return c.entries(ctx, "CreateRouteEntries", query)
		})
	for _, w := range want {
		fault := faults[w.Dst]
		var r *refusal
		switch isRefusal := errors.As(fault, &r); {
		case fault == nil:
			c.o.Logger.Info("route begun", "table", c.t.ID, "subnet", w.Dst, "instance", w.Target)
		case isRefusal && r.exists(): // an answer was lost, or the read was of before
			faults[w.Dst] = fmt.Errorf("the cloud says that it has the route, and shows it not yet: %w",
				routecontrol.ErrPending)
		case isRefusal && r.full():
			faults[w.Dst] = fmt.Errorf("%w: it has %d routes of all kinds; Alibaba Cloud raises the quota of custom "+
				"routes when asked: %w", table.ErrFull, len(c.t.Have), fault)
		}
	}
	return faults
}

// DeleteAll implements table.Bulk. Routes are named by their ids, so that one that somebody else has put in
// its place stays.
func (c changer) DeleteAll(ctx context.Context, routes []table.Route) map[netip.Prefix]error {
	faults := each(routes, func(r table.Route) netip.Prefix { return r.Dst },
		func(some []table.Route) (map[netip.Prefix]error, error) {
			query := map[string]string{}
			for i, r := range some {
				at := "RouteEntries." + strconv.Itoa(i+1) + "."
				query[at+"RouteTableId"], query[at+"RouteEntryId"] = c.t.ID, r.Name
			}
			return c.entries(ctx, "DeleteRouteEntries", query)
		})
	for _, x := range routes {
		fault := faults[x.Dst]
		var r *refusal
		switch {
		case errors.As(fault, &r) && r.gone():
			delete(faults, x.Dst)
		case fault == nil:
			c.o.Logger.Info("route's end begun", "table", c.t.ID, "subnet", x.Dst, "instance", x.Target)
		}
	}
	return faults
}

// each makes one call for all routes, and one for each of them if that one is refused, since it may be the
// fault of a single route. Once the cloud asks for fewer calls it makes no more. It returns by destination
// what was not done.
func each[T any](routes []T, dst func(T) netip.Prefix,
	call func([]T) (map[netip.Prefix]error, error)) map[netip.Prefix]error {
	faults, err := call(routes)
	if err == nil {
		return faults
	}
	single := len(routes) > 1 && divisible(err)
	faults = map[netip.Prefix]error{}
	for i, r := range routes {
		if single && !errors.Is(err, table.ErrSlow) {
			var one map[netip.Prefix]error
			if one, err = call(routes[i : i+1]); err == nil {
				err = one[dst(r)]
			}
		}
		if err != nil {
			faults[dst(r)] = err
		}
	}
	return faults
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
