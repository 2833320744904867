package aliroutes

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// instance is one that has the tag.
type instance struct {
	id      string
	running bool
}

// fleet is the VPC in one round, with our instances.
type fleet struct {
	*cloud
	byAddr map[netip.Addr]instance
	byID   map[string]instance
}

// tag is of either form in which answers have one.
type tag struct{ Key, Value, TagKey, TagValue string }

// tagged reports whether tags have ours: a tag in a request that an API did not know would be ignored, and
// everybody's tables were ours.
func (c *cloud) tagged(tags []tag) bool {
	for _, t := range tags {
		if t.Key+t.TagKey == c.key && t.Value+t.TagValue == c.value {
			return true
		}
	}
	return false
}

// instanceJSON is as much of an instance of DescribeInstances as matters here.
type instanceJSON struct {
	InstanceID string `json:"InstanceId"`
	Status     string
	VPC        struct {
		ID        string `json:"VpcId"`
		Addresses struct {
			IPAddress []string `json:"IpAddress"`
		} `json:"PrivateIpAddress"`
	} `json:"VpcAttributes"`
	Tags       struct{ Tag []tag }
	Interfaces struct {
		List []struct {
			PrimaryIPAddress string `json:"PrimaryIpAddress"`
			V4               struct {
				List []struct {
					PrivateIPAddress string `json:"PrivateIpAddress"`
				} `json:"PrivateIpSet"`
			} `json:"PrivateIpSets"`
			V6 struct {
				List []struct{ Ipv6Address string } `json:"Ipv6Set"`
			} `json:"Ipv6Sets"`
		} `json:"NetworkInterface"`
	} `json:"NetworkInterfaces"`
}

// fleet reads the instances that have the tag, whether they run or not.
func (c *cloud) fleet(ctx context.Context) (fleet, error) {
	f := fleet{c, map[netip.Addr]instance{}, map[string]instance{}}
	query := map[string]string{"VpcId": c.VPC, "Tag.1.Key": c.key, "Tag.1.Value": c.value, "MaxResults": "100",
		// without it an instance's IPv6 addresses are not among the answers
		"AdditionalAttributes.1": "NETWORK_PRIMARY_ENI_IP"}
	for {
		var page struct {
			NextToken string
			Instances struct{ Instance []instanceJSON }
		}
		if err := c.call(ctx, c.ecs, "DescribeInstances", query, &page); err != nil {
			return f, err
		}
		for _, i := range page.Instances.Instance {
			if i.VPC.ID == c.VPC && c.tagged(i.Tags.Tag) {
				f.add(i)
			}
		}
		if page.NextToken == "" {
			return f, nil
		}
		query["NextToken"] = page.NextToken
	}
}

func (f fleet) add(j instanceJSON) {
	i := instance{j.InstanceID, j.Status == "Running"}
	f.byID[i.id] = i
	at := j.VPC.Addresses.IPAddress
	for _, x := range j.Interfaces.List {
		at = append(at, x.PrimaryIPAddress)
		for _, a := range x.V4.List {
			at = append(at, a.PrivateIPAddress)
		}
		for _, a := range x.V6.List {
			at = append(at, a.Ipv6Address)
		}
	}
	for _, text := range at {
		if a, err := netip.ParseAddr(text); err == nil {
			f.byAddr[a] = i
		}
	}
}

// Target implements table.View: an instance.
func (f fleet) Target(_ context.Context, hop netip.Addr) (string, error) {
	i, ok := f.byAddr[hop]
	if !ok {
		return "", fmt.Errorf("no instance of %s with the tag %s has the address %v", f.VPC, f.Tag, hop)
	}
	return i.id, nil
}

// Tables implements table.View: it reads the route tables that have the tag.
func (f fleet) Tables(ctx context.Context) ([]table.Table, error) {
	const most = 50
	query := map[string]string{"VpcId": f.VPC, "Tag.1.Key": f.key, "Tag.1.Value": f.value,
		"PageSize": strconv.Itoa(most)}
	var out []table.Table
	for number, seen := 1, 0; ; number++ {
		query["PageNumber"] = strconv.Itoa(number)
		var page struct {
			TotalCount int
			List       struct {
				Tables []struct {
					RouteTableID string `json:"RouteTableId"`
					VPCID        string `json:"VpcId"`
					Tags         struct{ Tag []tag }
				} `json:"RouterTableListType"`
			} `json:"RouterTableList"`
		}
		if err := f.call(ctx, f.vpc, "DescribeRouteTableList", query, &page); err != nil {
			return nil, err
		}
		for _, t := range page.List.Tables {
			if t.VPCID != f.VPC || !f.tagged(t.Tags.Tag) {
				continue
			}
			one, err := f.table(ctx, t.RouteTableID)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		if seen += len(page.List.Tables); seen >= page.TotalCount || len(page.List.Tables) == 0 {
			break
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no route table of %s has the tag %s: nothing can be routed until one has",
			f.VPC, f.Tag)
	}
	return out, nil
}

// entryJSON is as much of a route entry of DescribeRouteEntryList as matters here.
type entryJSON struct {
	RouteEntryID         string `json:"RouteEntryId"`
	DestinationCidrBlock string
	Description          string
	Type                 string
	Status               string
	ServiceType          string
	NextHops             struct {
		NextHop []struct {
			NextHopID   string `json:"NextHopId"`
			NextHopType string
		}
	}
}

func (f fleet) table(ctx context.Context, id string) (table.Table, error) {
	out := table.Table{ID: id}
	query := map[string]string{"RouteTableId": id, "MaxResult": "100"}
	for {
		var page struct {
			NextToken   string
			RouteEntrys struct{ RouteEntry []entryJSON }
		}
		if err := f.call(ctx, f.vpc, "DescribeRouteEntryList", query, &page); err != nil {
			return out, err
		}
		for _, e := range page.RouteEntrys.RouteEntry {
			if dst, err := netip.ParsePrefix(e.DestinationCidrBlock); err == nil { // else it is of a prefix list
				out.Have = append(out.Have, f.route(dst.Masked(), e))
				out.Count(dst)
			}
		}
		if page.NextToken == "" {
			return out, nil
		}
		query["NextToken"] = page.NextToken
	}
}

// route says whose a route is and where it leads.
func (f fleet) route(dst netip.Prefix, e entryJSON) table.Route {
	out := table.Route{Dst: dst, Name: e.RouteEntryID}
	var hops []string
	plain := false
	for _, h := range e.NextHops.NextHop {
		hops = append(hops, h.NextHopID)
		plain = h.NextHopType == "Instance"
	}
	if out.Target = strings.Join(hops, " and "); out.Target == "" {
		out.Target = "something of the cloud's own"
	}
	out.Ours = len(hops) == 1 && plain && e.Type == "Custom" && e.ServiceType == "" &&
		e.Description == f.description()
	if i, known := f.byID[out.Target]; known {
		out.Down = !i.running // the table goes on having it as before
	}
	switch e.Status {
	case "Available", "Created", "":
	default: // Pending, Creating, Modifying, Deleting
		out.Busy = true
	}
	return out
}
