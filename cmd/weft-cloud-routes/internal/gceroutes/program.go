package gceroutes

import (
	"context"
	"fmt"
	"net/netip"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

var _ routecontrol.Programmer = (*Cloud)(nil)

// Program implements routecontrol.Programmer. A route cannot be changed, only made anew under another name:
// the new one is there before the old one goes.
func (c *Cloud) Program(ctx context.Context, routes []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	f, err := c.fleet(ctx)
	if err != nil {
		return nil, table.PendingIfSlow(err)
	}
	return table.Round(ctx, look{c, f}, routes, keep, table.Additions, table.Deletions)
}

// look is the network in one round.
type look struct {
	*Cloud
	instances map[netip.Addr]instance
}

var _ table.Cloud = look{}

// Inside implements table.Cloud.
func (l look) Inside(dst netip.Prefix) bool { return l.o.Inside(dst) }

// Target implements table.Cloud: an instance.
func (l look) Target(hop netip.Addr) (string, error) {
	i, ok := l.instances[hop]
	switch {
	case !ok:
		return "", fmt.Errorf("no instance of project %s with the label %s has the address %v in network %s",
			l.o.Project, l.o.Label, hop, l.o.Network)
	case !i.forwards:
		return "", fmt.Errorf("%s may not forward packets of others: it has to be created with --can-ip-forward, "+
			"which takes effect for a stopped instance only", i.link)
	}
	return i.link, nil
}

// Ready implements table.Cloud: whether an instance forwards cannot be changed here.
func (look) Ready(context.Context, []table.Want) map[string]error { return nil }

// Tables implements table.Cloud: a network has one.
func (l look) Tables(ctx context.Context) ([]table.Table, error) {
	have, err := l.routes(ctx)
	return []table.Table{{Have: have}}, err
}

// Change implements table.Cloud. It begins all changes, and waits for them together.
func (l look) Change(ctx context.Context, _ table.Table, p table.Plan) map[netip.Prefix]error {
	ch := &changer{Cloud: l.Cloud, begun: map[netip.Prefix]operation{}}
	reasons := table.Apply(ctx, table.Single{Changer: ch}, p)
	ch.finish(ctx, reasons)
	return reasons
}
