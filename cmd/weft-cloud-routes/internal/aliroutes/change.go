package aliroutes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// Change implements table.View.
func (f fleet) Change(ctx context.Context, t table.Table, p table.Plan) map[netip.Prefix]error {
	return f.o.Apply(ctx, t, changer{f.cloud, t}, p)
}

// changer changes one route table. A table that is being changed takes no other change for some seconds, in
// which calls are tried again.
type changer struct {
	*cloud
	t table.Table
}

// Create implements table.Changer.
func (c changer) Create(ctx context.Context, w table.Want) error {
	version := "4"
	if w.Dst.Addr().Is6() {
		version = "6"
	}
	err := c.entry(ctx, "CreateRouteEntries", map[string]string{"DstCidrBlock": w.Dst.String(),
		"IpVersion": version, "NextHopType": "Instance", "NextHop": w.Target, "Name": "weft",
		"Description": c.description()})
	var r *refusal
	switch isRefusal := errors.As(err, &r); {
	case isRefusal && r.exists(): // an answer was lost, or the read was of before
		return fmt.Errorf("the cloud says that it has the route, and shows it not yet: %w", routecontrol.ErrPending)
	case isRefusal && r.full():
		return fmt.Errorf("%w: it has %d routes of all kinds; Alibaba Cloud raises the quota of custom routes "+
			"when asked: %w", table.ErrFull, len(c.t.Have), err)
	}
	return err
}

// Delete implements table.Changer. The route is named by its id, so that one that somebody else has put in
// its place stays.
func (c changer) Delete(ctx context.Context, x table.Route) error {
	err := c.entry(ctx, "DeleteRouteEntries", map[string]string{"RouteEntryId": x.Name})
	var r *refusal
	if errors.As(err, &r) && r.gone() {
		return nil
	}
	return err
}

// Replace implements table.Changer. A table has one route to a destination, which gets another next hop.
func (c changer) Replace(ctx context.Context, r table.Replacement) error {
	return c.call(ctx, c.vpc, "ModifyRouteEntry", map[string]string{"RouteEntryId": r.Old.Name,
		"NewNextHopType": "Instance", "NewNextHopId": r.Want.Target}, &struct{}{})
}

// entry makes a call that takes several routes, for one. What it says of that one is its answer.
func (c changer) entry(ctx context.Context, action string, entry map[string]string) error {
	query := map[string]string{"RouteEntries.1.RouteTableId": c.t.ID}
	for k, v := range entry {
		query["RouteEntries.1."+k] = v
	}
	return c.call(ctx, c.vpc, action, query, &entries{})
}
