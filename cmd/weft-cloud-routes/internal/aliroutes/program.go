package aliroutes

import (
	"context"
	"fmt"
	"net/netip"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

var _ routecontrol.Programmer = (*Cloud)(nil)

// Program implements routecontrol.Programmer.
func (c *Cloud) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	f, err := c.fleet(ctx)
	if err != nil {
		return nil, table.PendingIfSlow(err)
	}
	return table.Round(ctx, look{c, f}, routes, keep, table.All)
}

// look is the VPC in one round.
type look struct {
	*Cloud
	fleet fleet
}

var _ table.Cloud = look{}

// Inside implements table.Cloud.
func (l look) Inside(dst netip.Prefix) bool { return l.o.Inside(dst) }

// Target implements table.Cloud: an instance.
func (l look) Target(hop netip.Addr) (string, error) {
	i, ok := l.fleet.byAddr[hop]
	if !ok {
		return "", fmt.Errorf("no instance of %s with the tag %s has the address %v", l.o.VPC, l.o.Tag, hop)
	}
	return i.id, nil
}

// Ready implements table.Cloud: instances have no check of sources that the API could switch.
func (look) Ready(context.Context, []table.Want) map[string]error { return nil }

// Tables implements table.Cloud.
func (l look) Tables(ctx context.Context) ([]table.Table, error) { return l.tables(ctx, l.fleet) }

// Change implements table.Cloud.
func (l look) Change(ctx context.Context, t table.Table, p table.Plan) map[netip.Prefix]error {
	return table.Apply(ctx, changer{l.Cloud, t}, p)
}
