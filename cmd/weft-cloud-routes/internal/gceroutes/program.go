package gceroutes

import (
	"context"
	"fmt"
	"net/netip"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routehook"
)

// Program implements routecontrol.Programmer. A route cannot be changed, only made anew under another name:
// the new one is there before the old one goes.
func (c *Cloud) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	return table.Round(ctx, c.fleet, routes, keep, table.Additions, table.Deletions)
}

// fleet is the network in one round, with the instances that have our label.
type fleet struct {
	*Cloud
	byAddr map[netip.Addr]instance
}

// Inside implements table.Cloud.
func (f fleet) Inside(dst netip.Prefix) bool { return f.o.Inside(dst) }

// Target implements table.Cloud: an instance.
func (f fleet) Target(hop netip.Addr) (string, error) {
	i, ok := f.byAddr[hop]
	switch {
	case !ok:
		return "", fmt.Errorf("no instance of project %s with the label %s has the address %v in network %s",
			f.o.Project, f.o.Label, hop, f.o.Network)
	case !i.forwards:
		return "", fmt.Errorf("%s may not forward packets of others: it has to be created with --can-ip-forward, "+
			"which takes effect for a stopped instance only", i.link)
	}
	return i.link, nil
}

// Ready implements table.Cloud: whether an instance forwards cannot be changed here.
func (fleet) Ready(context.Context, []table.Want) map[string]error { return nil }

// Tables implements table.Cloud: a network has one.
func (f fleet) Tables(ctx context.Context) ([]table.Table, error) {
	have, err := f.routes(ctx)
	return []table.Table{{Have: have}}, err
}

// Change implements table.Cloud. It begins all changes, and waits for them together.
func (f fleet) Change(ctx context.Context, _ table.Table, p table.Plan) map[netip.Prefix]error {
	ch := &changer{Cloud: f.Cloud, begun: map[netip.Prefix]operation{}}
	reasons := table.Apply(ctx, table.Single{Changer: ch}, p)
	ch.finish(ctx, reasons)
	return reasons
}
