package gceroutes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// instance is one with our label.
type instance struct {
	// link is its place below projects/, with the project.
	link     string
	forwards bool // canIpForward
}

// instanceJSON is as much of an Instance of the API as matters here.
type instanceJSON struct {
	SelfLink     string `json:"selfLink"`
	CanIPForward bool   `json:"canIpForward"`
	Interfaces   []struct {
		Network     string `json:"network"`
		NetworkIP   string `json:"networkIP"`
		IPv6Address string `json:"ipv6Address"`
		External6   []struct {
			ExternalIPv6 string `json:"externalIpv6"`
		} `json:"ipv6AccessConfigs"`
	} `json:"networkInterfaces"`
}

// fleet is the network in one round, with the instances that have our label.
type fleet struct {
	*cloud
	byAddr map[netip.Addr]instance
}

// Target implements table.View: an instance.
func (f fleet) Target(_ context.Context, hop netip.Addr) (string, error) {
	i, ok := f.byAddr[hop]
	switch {
	case !ok:
		return "", fmt.Errorf("no instance of project %s with the label %s has the address %v in network %s",
			f.Project, f.Label, hop, f.Network)
	case !i.forwards:
		return "", fmt.Errorf("%s may not forward packets of others: it has to be created with --can-ip-forward, "+
			"which takes effect for a stopped instance only", i.link)
	}
	return i.link, nil
}

// fleet reads the instances that have the label, by their addresses in the network. One that is stopped keeps
// them.
func (c *cloud) fleet(ctx context.Context) (fleet, error) {
	key, value, _ := strings.Cut(c.Label, "=")
	f := fleet{c, map[netip.Addr]instance{}}
	query := url.Values{"filter": {"labels." + key + "=" + value}, "maxResults": {"500"}}
	for {
		var page struct {
			Items map[string]struct {
				Instances []instanceJSON `json:"instances"`
			} `json:"items"`
			Next string `json:"nextPageToken"`
		}
		if err := c.call(ctx, "compute.instances.list", http.MethodGet, "aggregated/instances", query, nil,
			&page); err != nil {
			return f, err
		}
		for _, zone := range page.Items {
			for _, i := range zone.Instances {
				f.add(i)
			}
		}
		if page.Next == "" {
			return f, nil
		}
		query.Set("pageToken", page.Next)
	}
}

func (f fleet) add(i instanceJSON) {
	for _, x := range i.Interfaces {
		if path.Base(x.Network) != f.Network {
			continue
		}
		at := []string{x.NetworkIP, x.IPv6Address}
		for _, e := range x.External6 {
			at = append(at, e.ExternalIPv6)
		}
		for _, text := range at {
			if a, err := netip.ParseAddr(text); err == nil {
				f.byAddr[a] = instance{below(i.SelfLink), i.CanIPForward}
			}
		}
	}
}

// below is what of a link is below projects/: the beginning is written in several ways.
func below(link string) string {
	_, rest, _ := strings.Cut(link, "/projects/")
	return rest
}

// priority is that of our routes, and the API's default. Of two routes to one destination the one with the
// smaller number counts.
const priority = 1000

// Tables implements table.View: a network has one.
func (c *cloud) Tables(ctx context.Context) ([]table.Table, error) {
	out := table.Table{ID: c.Network}
	query := url.Values{"maxResults": {"500"}}
	for {
		var page struct {
			Items []routeItem `json:"items"`
			Next  string      `json:"nextPageToken"`
		}
		err := c.call(ctx, "compute.routes.list", http.MethodGet, "global/routes", query, nil, &page)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Items {
			dst, err := netip.ParsePrefix(r.DestRange)
			if err != nil || path.Base(r.Network) != c.Network {
				continue
			}
			out.Count(dst)
			if x := c.route(dst.Masked(), r); x.Ours || r.Priority <= priority {
				out.Have = append(out.Have, x) // another one gives way to ours
			}
		}
		if page.Next == "" {
			return []table.Table{out}, nil
		}
		query.Set("pageToken", page.Next)
	}
}

// routeItem is as much of a Route of the API as is read here.
type routeItem struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Network     string `json:"network"`
	DestRange   string `json:"destRange"`
	Priority    uint32 `json:"priority"`
	Status      string `json:"routeStatus"`
	Warnings    []struct {
		Code string `json:"code"`
	} `json:"warnings"`
	Instance string `json:"nextHopInstance"`
	IP       string `json:"nextHopIp"`
	ILB      string `json:"nextHopIlb"`
	Gateway  string `json:"nextHopGateway"`
	VPN      string `json:"nextHopVpnTunnel"`
	Peering  string `json:"nextHopPeering"`
	Net      string `json:"nextHopNetwork"`
	Hub      string `json:"nextHopHub"`
}

// route says whose a route is and where it leads.
func (c *cloud) route(dst netip.Prefix, r routeItem) table.Route {
	out := table.Route{Dst: dst, Name: r.Name, Target: below(r.Instance)}
	if out.Target != "" {
		out.Ours = strings.HasPrefix(r.Name, c.prefix()) && r.Description == c.description()
		out.Down = r.Status != "" && r.Status != "ACTIVE"
		for _, w := range r.Warnings {
			out.Down = out.Down || strings.HasPrefix(w.Code, "NEXT_HOP_")
		}
		return out
	}
	out.Target = "something that this program does not know"
	if hop := cmp.Or(r.IP, r.ILB, r.Gateway, r.VPN, r.Peering, r.Net, r.Hub); hop != "" {
		out.Target = path.Base(hop)
	}
	return out
}

func (c *cloud) prefix() string { return "weft-" + c.Name + "-" }

func (c *cloud) description() string { return "made by weft-cloud-routes, name " + c.Name }

// name is a route's: the same for the same, so that one whose answer was lost is not made twice, and another
// for another next hop, so that both can be there.
func (c *cloud) name(w table.Want) string {
	return fmt.Sprintf("%s%x", c.prefix(),
		sha256.Sum256([]byte(w.Dst.String()+" "+w.Target)))[:len(c.prefix())+16]
}
