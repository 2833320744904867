package ec2test

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

type instancesAnswer struct {
	Reservations struct {
		Items []reservation `xml:"item"`
	} `xml:"reservationSet"`
	NextToken string `xml:"nextToken,omitempty"`
}

type reservation struct {
	Instances []instanceItem `xml:"instancesSet>item"`
}

type instanceItem struct {
	ID    string    `xml:"instanceId"`
	State string    `xml:"instanceState>name"`
	VPC   string    `xml:"vpcId"`
	NICs  []nicItem `xml:"networkInterfaceSet>item"`
}

type nicItem struct {
	ID    string   `xml:"networkInterfaceId"`
	Check bool     `xml:"sourceDestCheck"`
	V4    []string `xml:"privateIpAddressesSet>item>privateIpAddress"`
	V6    []string `xml:"ipv6AddressesSet>item>ipv6Address"`
}

func (c *Cloud) describeInstances(q url.Values) (any, *apiError) {
	var found []*Instance
	for _, i := range c.Instances {
		if matches(q, func(name string) string {
			switch key, isTag := strings.CutPrefix(name, "tag:"); {
			case isTag:
				return i.Tags[key]
			case name == "vpc-id":
				return i.VPC
			case name == "instance-state-name":
				return i.State
			}
			return ""
		}) {
			found = append(found, i)
		}
	}
	var out instancesAnswer
	from, to, next := c.page(q, len(found))
	out.NextToken = next
	for _, i := range found[from:to] {
		n := nicItem{ID: i.NIC, Check: i.Check}
		for _, a := range i.Addrs {
			if netip.MustParseAddr(a).Is4() {
				n.V4 = append(n.V4, a)
			} else {
				n.V6 = append(n.V6, a)
			}
		}
		out.Reservations.Items = append(out.Reservations.Items,
			reservation{[]instanceItem{{i.ID, i.State, i.VPC, []nicItem{n}}}})
	}
	return out, nil
}

type interfacesAnswer struct {
	Interfaces struct {
		Items []interfaceItem `xml:"item"`
	} `xml:"networkInterfaceSet"`
	NextToken string `xml:"nextToken,omitempty"`
}

type interfaceItem struct {
	ID string `xml:"networkInterfaceId"`
}

// describeInterfaces lists an interface for as long as its instance is not terminated.
func (c *Cloud) describeInterfaces(q url.Values) (any, *apiError) {
	var found []interfaceItem
	for _, i := range c.Instances {
		if i.State != "terminated" && matches(q, func(string) string { return i.NIC }) {
			// network-interface-id, the only filter that is used
			found = append(found, interfaceItem{i.NIC})
		}
	}
	var out interfacesAnswer
	from, to, next := c.page(q, len(found))
	out.NextToken, out.Interfaces.Items = next, found[from:to]
	return out, nil
}

type tablesAnswer struct {
	Tables struct {
		Items []tableItem `xml:"item"`
	} `xml:"routeTableSet"`
	NextToken string `xml:"nextToken,omitempty"`
}

type tableItem struct {
	ID     string `xml:"routeTableId"`
	VPC    string `xml:"vpcId"`
	Routes struct {
		Items []routeItem `xml:"item"`
	} `xml:"routeSet"`
}

type routeItem struct {
	V4      string `xml:"destinationCidrBlock,omitempty"`
	V6      string `xml:"destinationIpv6CidrBlock,omitempty"`
	NIC     string `xml:"networkInterfaceId,omitempty"`
	Gateway string `xml:"gatewayId,omitempty"`
	Origin  string `xml:"origin"`
	State   string `xml:"state"`
}

func (c *Cloud) describeTables(q url.Values) (any, *apiError) {
	var found []*Table
	for _, t := range c.Tables {
		if matches(q, func(name string) string {
			if key, isTag := strings.CutPrefix(name, "tag:"); isTag {
				return t.Tags[key]
			}
			return t.VPC // the only other filter that is used
		}) {
			found = append(found, t)
		}
	}
	var out tablesAnswer
	from, to, next := c.page(q, len(found))
	out.NextToken = next
	for _, t := range found[from:to] {
		item := tableItem{ID: t.ID, VPC: t.VPC}
		for i := range t.Routes {
			r := &t.Routes[i]
			if r.hidden > 0 {
				r.hidden--
				continue
			}
			x := routeItem{NIC: r.NIC, Gateway: r.Gateway, Origin: r.Origin, State: "active"}
			if netip.MustParsePrefix(r.Dst).Addr().Is4() {
				x.V4 = r.Dst
			} else {
				x.V6 = r.Dst
			}
			up := func(i *Instance) bool { return i.NIC == r.NIC && i.State == "running" }
			if r.NIC != "" && !slices.ContainsFunc(c.Instances, up) {
				x.State = "blackhole"
			}
			item.Routes.Items = append(item.Routes.Items, x)
		}
		out.Tables.Items = append(out.Tables.Items, item)
	}
	return out, nil
}
