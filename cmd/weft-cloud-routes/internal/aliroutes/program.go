package aliroutes

import (
	"context"
	"fmt"
	"net/netip"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routehook"
)

// Program implements routecontrol.Programmer.
func (c *Cloud) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	return table.Round(ctx, c.fleet, routes, keep, table.All)
}

// Inside implements table.Cloud.
func (f fleet) Inside(dst netip.Prefix) bool { return f.o.Inside(dst) }

// Target implements table.Cloud: an instance.
func (f fleet) Target(hop netip.Addr) (string, error) {
	i, ok := f.byAddr[hop]
	if !ok {
		return "", fmt.Errorf("no instance of %s with the tag %s has the address %v", f.o.VPC, f.o.Tag, hop)
	}
	return i.id, nil
}

// Ready implements table.Cloud: instances have no check of sources that the API could switch.
func (fleet) Ready(context.Context, []table.Want) map[string]error { return nil }

// Change implements table.Cloud.
func (f fleet) Change(ctx context.Context, t table.Table, p table.Plan) map[netip.Prefix]error {
	return table.Apply(ctx, changer{f.Cloud, t}, p)
}
