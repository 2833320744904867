package routing

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/encap"
	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
	"weft/tunnel/port"
)

func TestBuildSpec(t *testing.T) {
	u := underlay.Link{Addr4: addr("192.0.2.1"), Ext4: addr("203.0.113.1"), Addr6: addr("2001:db8::1"),
		Ext6: addr("2001:db8::1")}
	rec := func(v4, v6, ip, ip6 string, f func(*lease.Record)) lease.Record {
		var r lease.Record
		if v4 != "" {
			r.V4 = pfx(v4)
		}
		if v6 != "" {
			r.V6 = pfx(v6)
		}
		if ip != "" {
			r.PublicIP = addr(ip)
		}
		if ip6 != "" {
			r.PublicIPv6 = addr(ip6)
		}
		if f != nil {
			f(&r)
		}
		return r
	}
	set := lease.Set{
		Config: lease.NetworkConfig{Network: net4, IPv6Network: net6},
		Own: rec("10.5.1.0/24", "fd00:5:0:1::/64", "203.0.113.1", "2001:db8::1", func(r *lease.Record) {
			r.Weft = &lease.Weft{Node: "me", Addrs: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.77")}}
		}),
		Peers: []lease.Record{
			rec("10.5.2.0/24", "", "192.0.2.2", "", nil), // flannel
			rec("10.5.3.0/24", "fd00:5:0:3::/64", "192.0.2.3", "2001:db8::3", func(r *lease.Record) {
				// weft, dual, hostile
				r.Weft = &lease.Weft{Node: "three", Recv: []string{"pcsum", "later"}, MTU: 1400,
					Addrs: []netip.Addr{addr("192.0.2.33"), addr("192.0.2.4"), addr("192.0.2.33")}}
			}),
			rec("10.5.4.0/24", "", "192.0.2.4", "", func(r *lease.Record) { r.BackendType = "UDP" }),
			rec("10.5.5.0/24", "", "192.0.2.5", "", func(r *lease.Record) { r.BackendType = "vxlan" }),
			rec("10.5.6.0/24", "fd00:5:0:6::/64", "", "2001:db8::6", func(r *lease.Record) { r.Weft = &lease.Weft{} }),
			rec("10.5.7.0/24", "", "", "", nil),
			rec("10.5.8.0/24", "", "192.0.2.2", "", nil), // the first one's address
			rec("10.5.9.0/24", "", "10.5.250.9", "", nil),
		},
	}
	o := udp{senders: senders{"outer", prefixes{pfx("198.51.100.0/24")}}}
	displaced := []underlay.Displaced{{Addr: addr("10.5.250.9"), Network: pfx("10.5.0.0/16"),
		Route: kernel.Route{Dst: pfx("0.0.0.0/0"), Gateway: addr("192.0.2.254"), Link: "eth0"}}}
	peers := o.want(situation{set: set, under: u, mtu: 1472, outer: 1500, displaced: displaced})
	got, skipped := *peers.spec, peers.skipped()
	want := tunnel.Spec{
		Local:    []netip.Prefix{pfx("10.5.1.0/24"), pfx("fd00:5:0:1::/64")},
		Address4: addr("10.5.1.0"), Address6: addr("fd00:5:0:1::"),
		Self:        []netip.Addr{addr("192.0.2.1"), addr("192.0.2.77"), addr("203.0.113.1"), addr("2001:db8::1")},
		UnderlayMTU: 1500, MTU: 1472, Check: tunnel.CheckOuter, AllowedSources: o.AllowedSources,
		Peers: []tunnel.PeerSpec{
			{Name: "10.5.2.0/24", Addr: addr("192.0.2.2"), Subnets: []netip.Prefix{pfx("10.5.2.0/24")},
				InnerSources: []netip.Addr{addr("192.0.2.2")}},
			{Name: "three", Addr: addr("192.0.2.3"), Sources: []netip.Addr{addr("192.0.2.33"), addr("2001:db8::3")},
				Subnets:      []netip.Prefix{pfx("10.5.3.0/24"), pfx("fd00:5:0:3::/64")},
				InnerSources: []netip.Addr{addr("192.0.2.3"), addr("2001:db8::3")}, Weft: true, Recv: port.RecvPCsum,
				MTU: 1400},
			{Name: "10.5.4.0/24", Addr: addr("192.0.2.4"), Subnets: []netip.Prefix{pfx("10.5.4.0/24")},
				InnerSources: []netip.Addr{addr("192.0.2.4")}},
			{Name: "10.5.6.0/24", Addr: addr("2001:db8::6"),
				Subnets:      []netip.Prefix{pfx("10.5.6.0/24"), pfx("fd00:5:0:6::/64")},
				InnerSources: []netip.Addr{addr("2001:db8::6")}, Weft: true},
		},
		LeftOut: []tunnel.PeerSpec{ // so that nobody else sends with their addresses
			{Name: "10.5.5.0/24", Subnets: []netip.Prefix{pfx("10.5.5.0/24")}},
			{Name: "10.5.7.0/24", Subnets: []netip.Prefix{pfx("10.5.7.0/24")}},
			{Name: "10.5.8.0/24", Subnets: []netip.Prefix{pfx("10.5.8.0/24")}},
			{Name: "10.5.9.0/24", Subnets: []netip.Prefix{pfx("10.5.9.0/24")}},
		},
	}
	if d := cmp.Diff(want, got, compareState); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	wantSkipped := []Skipped{
		{"10.5.5.0/24", "", addr("192.0.2.5"), "", lease.Subnets{V4: pfx("10.5.5.0/24")}},
		{"10.5.7.0/24", "", netip.Addr{}, "", lease.Subnets{V4: pfx("10.5.7.0/24")}},
		{"10.5.8.0/24", "", addr("192.0.2.2"), "", lease.Subnets{V4: pfx("10.5.8.0/24")}},
		{"10.5.9.0/24", "", addr("10.5.250.9"), "", lease.Subnets{V4: pfx("10.5.9.0/24")}},
		{"three", "three", addr("192.0.2.3"), "",
			lease.Subnets{V4: pfx("10.5.3.0/24"), V6: pfx("fd00:5:0:3::/64")}},
	}
	for i := range skipped {
		if skipped[i].Reason == "" {
			t.Errorf("no reason: %+v", skipped[i])
		}
		skipped[i].Reason = ""
	}
	if d := cmp.Diff(wantSkipped, skipped, compareState); d != "" {
		t.Errorf("skipped (-want +got):\n%s", d)
	}
	if _, err := tunnel.NewTable(encap.FormatIP, got); err != nil {
		t.Errorf("the data plane refuses it: %v", err)
	}
}

func TestBuildSpecWithoutIPv4Underlay(t *testing.T) {
	u := underlay.Link{Addr6: addr("2001:db8::1"), Ext6: addr("2001:db8::1")}
	set := lease.Set{Config: lease.NetworkConfig{Network: net4}, Own: vxlanPeer(1), Peers: []lease.Record{{
		Subnets: lease.Subnets{V4: pfx("10.5.2.0/24")},
		Attrs:   lease.Attrs{PublicIP: addr("192.0.2.2"), PublicIPv6: addr("2001:db8::2")},
	}}}
	peers := new(udp).want(situation{set: set, under: u, mtu: 1472, outer: 1500})
	s, skipped := peers.spec, peers.skipped()
	if len(skipped) != 0 || len(s.Peers) != 1 || s.Peers[0].Addr != addr("2001:db8::2") {
		t.Errorf("got %+v, %v", s, skipped)
	}
}
