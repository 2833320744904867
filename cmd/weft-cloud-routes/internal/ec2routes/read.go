package ec2routes

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// nic is a network interface of one of our instances.
type nic struct {
	id, instance string
	checked      bool // the source/destination check is on
}

// fleet is the VPC in one round, with the network interfaces of our instances.
type fleet struct {
	*cloud
	byAddr map[netip.Addr]*nic
	ids    map[string]bool
	// others has, of the interfaces of nobody we know that were asked for, whether they exist.
	others map[string]bool
}

// How many instances, route tables or interfaces one call returns at the most. For more interfaces none asks.
const (
	instancesPage  = 500
	tablesPage     = 100
	interfacesPage = 100
)

func (c *cloud) filters(more ...types.Filter) []types.Filter {
	return append([]types.Filter{
		{Name: aws.String("vpc-id"), Values: []string{c.VPC}},
		{Name: aws.String("tag:" + c.key), Values: []string{c.value}},
	}, more...)
}

// fleet reads the instances that have the tag. One that was stopped keeps its addresses and interfaces; of
// one that is being terminated only the interfaces count, for the routes to them are still ours; one that was
// terminated is none.
func (c *cloud) fleet(ctx context.Context) (fleet, error) {
	f := fleet{cloud: c, byAddr: map[netip.Addr]*nic{}, ids: map[string]bool{}, others: map[string]bool{}}
	pages := ec2.NewDescribeInstancesPaginator(c.client, &ec2.DescribeInstancesInput{
		MaxResults: aws.Int32(instancesPage),
		Filters: c.filters(types.Filter{Name: aws.String("instance-state-name"),
			Values: []string{"pending", "running", "stopping", "stopped", "shutting-down"}}),
	})
	for pages.HasMorePages() {
		page, err := next(ctx, c, "DescribeInstances", pages.NextPage)
		if err != nil {
			return f, err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				f.add(i)
			}
		}
	}
	return f, nil
}

// next reads the next page of a call.
func next[P any](ctx context.Context, c *cloud, call string,
	read func(context.Context, ...func(*ec2.Options)) (P, error)) (page P, err error) {
	err = c.call(ctx, call, func() (err error) { page, err = read(ctx); return err })
	return page, err
}

func (f fleet) add(i types.Instance) {
	for _, x := range i.NetworkInterfaces {
		n := &nic{aws.ToString(x.NetworkInterfaceId), aws.ToString(i.InstanceId), x.SourceDestCheck == nil ||
			*x.SourceDestCheck}
		f.ids[n.id] = true
		if i.State != nil && i.State.Name == types.InstanceStateNameShuttingDown {
			continue
		}
		var at []string
		for _, a := range x.PrivateIpAddresses {
			at = append(at, aws.ToString(a.PrivateIpAddress))
		}
		for _, a := range x.Ipv6Addresses {
			at = append(at, aws.ToString(a.Ipv6Address))
		}
		for _, text := range at {
			if a, err := netip.ParseAddr(text); err == nil {
				f.byAddr[a.Unmap()] = n
			}
		}
	}
}

// Target implements table.View: a network interface, of which it switches the source/destination check off.
func (f fleet) Target(ctx context.Context, hop netip.Addr) (string, error) {
	n := f.byAddr[hop]
	switch {
	case n == nil:
		return "", fmt.Errorf("no instance of %s with the tag %s has the address %v", f.VPC, f.Tag, hop)
	case !n.checked:
		return n.id, nil
	case f.KeepSourceCheck:
		return "", fmt.Errorf("the source/destination check of %s (%s) is on, and --keep-source-check forbids to "+
			"switch it off", n.instance, n.id)
	}
	if err := f.call(ctx, "ModifyNetworkInterfaceAttribute", func() error {
		_, err := f.client.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: aws.String(n.id),
			SourceDestCheck:    &types.AttributeBooleanValue{Value: aws.Bool(false)},
		})
		return err
	}); err != nil {
		return "", fmt.Errorf("the source/destination check of %s (%s) is on, and stays: %w", n.instance, n.id, err)
	}
	n.checked = false
	f.o.Logger.Info("source/destination check switched off", "instance", n.instance, "interface", n.id)
	return n.id, nil
}

// Tables implements table.View: it reads the route tables that have the tag, and into f what has to be known
// to say whose their routes are.
func (f fleet) Tables(ctx context.Context) ([]table.Table, error) {
	var read []types.RouteTable
	pages := ec2.NewDescribeRouteTablesPaginator(f.client,
		&ec2.DescribeRouteTablesInput{MaxResults: aws.Int32(tablesPage), Filters: f.filters()})
	for pages.HasMorePages() {
		page, err := next(ctx, f.cloud, "DescribeRouteTables", pages.NextPage)
		if err != nil {
			return nil, err
		}
		read = append(read, page.RouteTables...)
	}
	if err := f.askFor(ctx, read); err != nil {
		return nil, err
	}
	var out []table.Table
	for _, t := range read {
		rt := table.Table{ID: aws.ToString(t.RouteTableId)}
		for _, r := range t.Routes {
			dst, ok := destination(r)
			if !ok {
				continue // of a prefix list
			}
			rt.Have = append(rt.Have, f.route(dst, r))
			rt.Count(dst)
		}
		out = append(out, rt)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no route table of %s has the tag %s: nothing can be routed until one has",
			f.VPC, f.Tag)
	}
	return out, nil
}

// askFor notes of each interface to which EC2 drops packets, and which is none of our instances', whether it
// exists: that of somebody else's instance that was stopped does. Most rounds have nothing to ask.
func (f fleet) askFor(ctx context.Context, read []types.RouteTable) error {
	var ids []string
	for _, t := range read {
		for _, r := range t.Routes {
			id := aws.ToString(r.NetworkInterfaceId)
			dst, ok := destination(r)
			if _, asked := f.others[id]; !ok || id == "" || asked || f.ids[id] ||
				r.State != types.RouteStateBlackhole || !f.mayBeOurs(dst, r) {
				continue
			}
			f.others[id] = false
			ids = append(ids, id)
		}
	}
	for some := range slices.Chunk(ids, interfacesPage) {
		pages := ec2.NewDescribeNetworkInterfacesPaginator(f.client, &ec2.DescribeNetworkInterfacesInput{
			MaxResults: aws.Int32(interfacesPage),
			// unlike NetworkInterfaceIds, no error for one that is gone
			Filters: []types.Filter{{Name: aws.String("network-interface-id"), Values: some}},
		})
		for pages.HasMorePages() {
			page, err := next(ctx, f.cloud, "DescribeNetworkInterfaces", pages.NextPage)
			if err != nil {
				return err
			}
			for _, x := range page.NetworkInterfaces {
				f.others[aws.ToString(x.NetworkInterfaceId)] = true
			}
		}
	}
	return nil
}

func destination(r types.Route) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(cmp.Or(aws.ToString(r.DestinationCidrBlock),
		aws.ToString(r.DestinationIpv6CidrBlock)))
	return p.Masked(), err == nil
}

// route says whose a route is and where it leads.
func (f fleet) route(dst netip.Prefix, r types.Route) table.Route {
	out := table.Route{Dst: dst, Down: r.State != types.RouteStateActive}
	if out.Target = aws.ToString(r.NetworkInterfaceId); out.Target != "" {
		exists, asked := f.others[out.Target]
		out.Ours = f.mayBeOurs(dst, r) && (f.ids[out.Target] || asked && !exists)
		return out
	}
	out.Target = cmp.Or(aws.ToString(r.GatewayId), aws.ToString(r.NatGatewayId),
		aws.ToString(r.TransitGatewayId), aws.ToString(r.VpcPeeringConnectionId), aws.ToString(r.EgressOnlyInternetGatewayId),
		aws.ToString(r.CarrierGatewayId), aws.ToString(r.LocalGatewayId), aws.ToString(r.InstanceId),
		aws.ToString(r.CoreNetworkArn), aws.ToString(r.OdbNetworkArn), "something that this program does not know")
	return out
}

// mayBeOurs reports whether a route is ours unless it leads to what is somebody else's.
func (c *cloud) mayBeOurs(dst netip.Prefix, r types.Route) bool {
	return r.Origin == types.RouteOriginCreateRoute && c.o.Inside(dst)
}
