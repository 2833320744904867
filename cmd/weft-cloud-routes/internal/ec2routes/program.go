package ec2routes

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

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

// Target implements table.Cloud: a network interface.
func (f fleet) Target(hop netip.Addr) (string, error) {
	n, ok := f.byAddr[hop]
	if !ok {
		return "", fmt.Errorf("no instance of %s with the tag %s has the address %v", f.o.VPC, f.o.Tag, hop)
	}
	if n.checked && f.o.KeepSourceCheck {
		return "", fmt.Errorf("the source/destination check of %s (%s) is on, and --keep-source-check forbids to "+
			"switch it off", n.instance, n.id)
	}
	return n.id, nil
}

// Change implements table.Cloud.
func (f fleet) Change(ctx context.Context, t table.Table, p table.Plan) map[netip.Prefix]error {
	return table.Apply(ctx, table.Single{Changer: changer{f.Cloud, t}}, p)
}

// Ready implements table.Cloud. It switches the source/destination check off at the interfaces that are
// wanted as targets.
func (f fleet) Ready(ctx context.Context, want []table.Want) map[string]error {
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
		_, err := f.client.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: aws.String(n.id),
			SourceDestCheck:    &types.AttributeBooleanValue{Value: aws.Bool(false)},
		})
		if err = f.called("ModifyNetworkInterfaceAttribute", err); err != nil {
			faults[n.id] = fmt.Errorf("the source/destination check of %s (%s) is on, and stays: %w", n.instance, n.id,
				table.PendingIfSlow(err))
			continue
		}
		f.o.Logger.Info("source/destination check switched off", "instance", n.instance, "interface", n.id)
	}
	return faults
}
