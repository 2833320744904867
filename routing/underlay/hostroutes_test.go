package underlay

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
)

func TestDisplaced(t *testing.T) {
	links := []kernel.Device{
		{Name: "eth0", Index: 2},
		{Name: "flannel0", Alias: kernel.Alias, Index: 7, Kind: "tun"},
		{Name: "flannel1", Index: 8, Kind: "tun"}, // flanneld left it
		{Name: "flannel.1", Index: 9},             // vxlan, of another network
	}
	addrs := []kernel.AddrInfo{{Index: 2, Addr: addr("10.0.0.7")}, {Index: 7, Addr: addr("10.20.0.0")},
		{Index: 2, Addr: addr("fd00::7")}}
	route := func(dst, gw, link string, protocol uint8, metric uint32) kernel.Route {
		r := kernel.Route{Dst: pfx(dst), Link: link, Protocol: protocol, Metric: metric}
		if gw != "" {
			r.Gateway = addr(gw)
		}
		return r
	}
	viaDefault := []kernel.Route{
		route("0.0.0.0/0", "192.0.2.9", "eth0", kernel.ProtoBoot, 100),
		route("0.0.0.0/0", "192.0.2.1", "eth0", kernel.ProtoBoot, 0),
		route("::/0", "fe80::1", "eth0", kernel.ProtoBoot, 1024),
	}
	with := func(more ...kernel.Route) []kernel.Route { return slices.Concat(viaDefault, more) }
	net8, net6 := pfx("10.0.0.0/8"), pfx("fd00::/8")
	for _, tt := range []struct {
		name   string
		routes []kernel.Route
		addr   string
		via    string // "" if it is not displaced
	}{
		{"behind the default gateway", with(), "10.20.0.5", "192.0.2.1 on eth0"},
		{"IPv6 too", with(), "fd00:20::5", "fe80::1 on eth0"},
		{"outside", with(), "192.0.2.50", ""},
		{"this host", with(), "10.0.0.7", ""},
		{"this host, IPv6", with(), "fd00::7", ""},
		{"only the overlay has the address here", with(), "10.20.0.0", "192.0.2.1 on eth0"},
		{"on the link", with(route("10.20.0.0/16", "", "eth0", 2, 0)), "10.20.0.5", ""},
		{"a route to it", with(route("10.20.0.5/32", "192.0.2.3", "eth0", 4, 9)), "10.20.0.5", ""},
		{"a route to another", with(route("10.21.0.0/16", "192.0.2.3", "eth0", 4, 0)), "10.20.0.5",
			"192.0.2.1 on eth0"},
		{"a shorter route", with(route("10.0.0.0/7", "192.0.2.3", "eth0", 4, 0)), "10.20.0.5", "192.0.2.3 on eth0"},
		{"one as long", with(route("10.0.0.0/8", "", "eth0", 2, 0)), "10.20.0.5", "eth0"},
		{"ours count for nothing", with(route("10.0.0.0/8", "", "flannel0", kernel.RouteProtocol, 0),
			route("10.20.0.0/16", "", "eth1", kernel.RouteProtocol, 0)), "10.20.0.5", "192.0.2.1 on eth0"},
		{"nor do those by our device", with(route("10.20.0.0/16", "", "flannel0", kernel.ProtoBoot, 0)),
			"10.20.0.5", "192.0.2.1 on eth0"},
		{"nor flannel's", with(route("10.20.0.0/16", "", "flannel1", kernel.ProtoBoot, 0)), "10.20.0.5",
			"192.0.2.1 on eth0"},
		{"another overlay's", with(route("10.20.0.0/24", "10.20.0.0", "flannel.1", kernel.ProtoBoot, 0)),
			"10.20.0.5", ""},
		{"no way at all", []kernel.Route{route("10.0.0.0/8", "", "flannel0", kernel.RouteProtocol, 0)},
			"10.20.0.5", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newHostRoutes(links, addrs, tt.routes).Displaced([]netip.Prefix{net8, net6},
				[]netip.Addr{addr(tt.addr)})
			if tt.via == "" {
				if len(got) > 0 {
					t.Errorf("got %+v, want none", got)
				}
				return
			}
			key := map[bool]string{false: "Network 10.0.0.0/8", true: "IPv6Network fd00::/8"}[addr(tt.addr).Is6()]
			if len(got) != 1 || !strings.Contains(got[0].Reason("the store"), " "+tt.via+":") ||
				!strings.HasPrefix(got[0].Reason("the store"), key) {
				t.Errorf("got %+v, want one via %s", got, tt.via)
			}
		})
	}
}
