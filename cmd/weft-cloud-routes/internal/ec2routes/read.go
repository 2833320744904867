package ec2routes

import (
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
	*Cloud
	byAddr map[netip.Addr]nic
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

func (c *Cloud) filters(more ...types.Filter) []types.Filter {
	return append([]types.Filter{
		{Name: aws.String("vpc-id"), Values: []string{c.o.VPC}},
		{Name: aws.String("tag:" + c.key), Values: []string{c.value}},
	}, more...)
}

// fleet reads the instances that have the tag. One that was stopped keeps its addresses and interfaces; of
// one that is being terminated only the interfaces count, for the routes to them are still ours; one that was
// terminated is none.
func (c *Cloud) fleet(ctx context.Context) (fleet, error) {
	f := fleet{Cloud: c, byAddr: map[netip.Addr]nic{}, ids: map[string]bool{}, others: map[string]bool{}}
	pages := ec2.NewDescribeInstancesPaginator(c.client, &ec2.DescribeInstancesInput{
		MaxResults: aws.Int32(instancesPage),
		Filters: c.filters(types.Filter{Name: aws.String("instance-state-name"),
			Values: []string{"pending", "running", "stopping", "stopped", "shutting-down"}}),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err = c.called("DescribeInstances", err); err != nil {
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

func (f fleet) add(i types.Instance) {
	for _, x := range i.NetworkInterfaces {
		n := nic{aws.ToString(x.NetworkInterfaceId), aws.ToString(i.InstanceId), x.SourceDestCheck == nil ||
			*x.SourceDestCheck}
		f.ids[n.id] = true
		if i.State != nil && i.State.Name == types.InstanceStateNameShuttingDown {
			continue
		}
		for _, a := range x.PrivateIpAddresses {
			f.at(aws.ToString(a.PrivateIpAddress), n)
		}
		for _, a := range x.Ipv6Addresses {
			f.at(aws.ToString(a.Ipv6Address), n)
		}
	}
}

// at notes an address. One that cannot be read is none.
func (f fleet) at(text string, n nic) {
	if a, err := netip.ParseAddr(text); err == nil {
		f.byAddr[a.Unmap()] = n
	}
}

// Tables implements table.Cloud: it reads the route tables that have the tag, and into f what has to be known
// to say whose their routes are.
func (f fleet) Tables(ctx context.Context) ([]table.Table, error) {
	var read []types.RouteTable
	pages := ec2.NewDescribeRouteTablesPaginator(f.client,
		&ec2.DescribeRouteTablesInput{MaxResults: aws.Int32(tablesPage), Filters: f.filters()})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err = f.called("DescribeRouteTables", err); err != nil {
			return nil, err
		}
		read = append(read, page.RouteTables...)
	}
	if err := f.askFor(ctx, read); err != nil {
		return nil, err
	}
	var out []table.Table
	for _, t := range read {
		rt, dsts := table.Table{ID: aws.ToString(t.RouteTableId)}, []netip.Prefix{}
		for _, r := range t.Routes {
			dst, ok := destination(r)
			if !ok {
				continue // of a prefix list
			}
			rt.Have, dsts = append(rt.Have, f.route(dst, r)), append(dsts, dst)
		}
		f.o.Size(rt.ID, dsts)
		out = append(out, rt)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no route table of %s has the tag %s: nothing can be routed until one has",
			f.o.VPC, f.o.Tag)
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
			page, err := pages.NextPage(ctx)
			if err = f.called("DescribeNetworkInterfaces", err); err != nil {
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
	text := aws.ToString(r.DestinationCidrBlock)
	if text == "" {
		text = aws.ToString(r.DestinationIpv6CidrBlock)
	}
	p, err := netip.ParsePrefix(text)
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
	for _, t := range []*string{r.GatewayId, r.NatGatewayId, r.TransitGatewayId, r.VpcPeeringConnectionId,
		r.EgressOnlyInternetGatewayId,
		r.CarrierGatewayId, r.LocalGatewayId, r.InstanceId, r.CoreNetworkArn, r.OdbNetworkArn} {
		if aws.ToString(t) != "" {
			out.Target = *t
			return out
		}
	}
	out.Target = "something that this program does not know"
	return out
}

// mayBeOurs reports whether a route is ours unless it leads to what is somebody else's.
func (c *Cloud) mayBeOurs(dst netip.Prefix, r types.Route) bool {
	return r.Origin == types.RouteOriginCreateRoute && c.o.Inside(dst)
}
