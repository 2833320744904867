package routing

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
)

// host is a listing with two underlay links, an overlay device and lo.
func host() listing {
	return listing{
		links: []linkInfo{
			{index: 1, name: "lo", mtu: 65536, up: true},
			{index: 2, name: "eth0", mtu: 1500, up: true},
			{index: 3, name: "eth1", mtu: 9000, up: true},
			{index: 4, name: "eth2", mtu: 1500},
			{index: 5, name: "flannel0", alias: kernel.Alias, mtu: 1472, up: true},
		},
		addrs: []kernel.AddrInfo{
			{Index: 1, Addr: addr("127.0.0.1")},
			{Index: 1, Addr: addr("::1")},
			{Index: 2, Addr: addr("fe80::2")},
			{Index: 2, Addr: addr("192.0.2.10"), Dynamic: true},
			{Index: 2, Addr: addr("192.0.2.11")},
			{Index: 2, Addr: addr("2001:db8::bad"), Failed: true},
			{Index: 2, Addr: addr("2001:db8::d"), Deprecated: true},
			{Index: 3, Addr: addr("169.254.1.1")},
			{Index: 3, Addr: addr("198.51.100.3")},
			{Index: 3, Addr: addr("2001:db8:1::7e"), Dynamic: true, Temporary: true},
			{Index: 3, Addr: addr("2001:db8:1::3"), Dynamic: true},
			{Index: 4, Addr: addr("203.0.113.4")},
			{Index: 5, Addr: addr("10.5.1.0")},
		},
		defaults: []kernel.DefaultRoute{
			{Index: 3, Metric: 100}, {Index: 2, Metric: 50}, {Index: 3, Six: true, Metric: 1024},
		},
		reach: kernel.ReachInfo{Index: 3, Src: addr("198.51.100.3")},
	}
}

func TestChoose(t *testing.T) {
	eth0 := Underlay{Link: "eth0", Index: 2, MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}
	eth1 := Underlay{Link: "eth1", Index: 3, MTU: 9000, Addr4: addr("198.51.100.3"), Ext4: addr("198.51.100.3")}
	dual := eth1
	dual.Addr6, dual.Ext6 = addr("2001:db8:1::3"), addr("2001:db8:1::3")
	with := func(u Underlay, change func(*Underlay)) Underlay { change(&u); return u }
	v4 := UnderlayOptions{IPv4: true}
	opt := func(o UnderlayOptions, change func(*UnderlayOptions)) UnderlayOptions { change(&o); return o }

	for _, c := range []struct {
		name string
		o    UnderlayOptions
		want Underlay
	}{
		{"default route with the lowest metric", v4, eth0},
		{"dual stack prefers the link with both", UnderlayOptions{IPv4: true, IPv6: true}, dual},
		{"IPv6 only", UnderlayOptions{IPv6: true},
			Underlay{Link: "eth1", Index: 3, MTU: 9000, Addr6: addr("2001:db8:1::3"), Ext6: addr("2001:db8:1::3")}},
		{"by name", opt(v4, func(o *UnderlayOptions) { o.Interfaces = []string{"eth1"} }), eth1},
		{"by name, in order, first that passes", opt(v4, func(o *UnderlayOptions) { o.Interfaces = []string{"none", "eth2", "eth1", "eth0"} }), eth1},
		{"by address", opt(v4, func(o *UnderlayOptions) { o.Interfaces = []string{"192.0.2.10"} }),
			with(eth0, func(u *Underlay) { u.Addr4, u.Ext4 = addr("192.0.2.10"), addr("192.0.2.10") })},
		{"by an IPv6 address, with an IPv4 one of the same link", UnderlayOptions{IPv4: true, IPv6: true, Interfaces: []string{"2001:db8:1::7e"}},
			with(dual, func(u *Underlay) { u.Addr6, u.Ext6 = addr("2001:db8:1::7e"), addr("2001:db8:1::7e") })},
		{"by a name of one family in dual stack", UnderlayOptions{IPv4: true, IPv6: true, Interfaces: []string{"eth0"}}, eth0},
		{"regexp on an address", opt(v4, func(o *UnderlayOptions) { o.Regexes = []string{`^198\.`} }), eth1},
		{"regexp is unanchored and matches names last", opt(v4, func(o *UnderlayOptions) { o.Regexes = []string{`th1`} }), eth1},
		{"regexp that matches the overlay's address too", opt(v4, func(o *UnderlayOptions) { o.Regexes = []string{`^10\.`, `eth0`} }), eth0},
		{"interfaces go before regexps", opt(v4, func(o *UnderlayOptions) { o.Regexes, o.Interfaces = []string{"eth1"}, []string{"eth0"} }), eth0},
		{"can reach", opt(v4, func(o *UnderlayOptions) { o.CanReach = addr("8.8.8.8") }), eth1},
		{"public address that is local chooses the link", opt(v4, func(o *UnderlayOptions) { o.PublicIP = addr("198.51.100.3") }), eth1},
		{"public address behind NAT is advertised only", opt(v4, func(o *UnderlayOptions) { o.PublicIP = addr("203.0.113.99") }),
			with(eth0, func(u *Underlay) { u.Ext4 = addr("203.0.113.99") })},
		{"public address with a named interface", opt(v4, func(o *UnderlayOptions) {
			o.Interfaces, o.PublicIP = []string{"eth1"}, addr("203.0.113.99")
		}), with(eth1, func(u *Underlay) { u.Ext4 = addr("203.0.113.99") })},
		{"public address of the named interface is the local one as well", opt(v4, func(o *UnderlayOptions) {
			o.Interfaces, o.PublicIP = []string{"eth0"}, addr("192.0.2.10")
		}), with(eth0, func(u *Underlay) { u.Addr4, u.Ext4 = addr("192.0.2.10"), addr("192.0.2.10") })},
		{"public IPv6 address behind a router", UnderlayOptions{IPv4: true, IPv6: true, PublicIPv6: addr("2001:db8:99::1")},
			with(dual, func(u *Underlay) { u.Ext6 = addr("2001:db8:99::1") })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := choose(host(), c.o)
			if err != nil || got != c.want {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestChooseRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		o    UnderlayOptions
		says []string
	}{
		{"every candidate with its reason", UnderlayOptions{IPv4: true, Interfaces: []string{"none", "eth2", "flannel0", "lo"}},
			[]string{"--iface none: no such interface; there are lo, eth0", "eth2 is down: set it up", "own device", "127.0.0.1 is not unicast", "--iface ADDRESS"}},
		{"address that is not local", UnderlayOptions{IPv4: true, Interfaces: []string{"203.0.113.99"}}, []string{"no interface has that address", "--public-ip"}},
		{"no IPv6 that can be used", UnderlayOptions{IPv6: true, Interfaces: []string{"eth0"}},
			[]string{"fe80::2 is link-local", "duplicate", "deprecated"}},
		{"all families wanted", UnderlayOptions{IPv4: true, IPv6: true, AllFamilies: true, Interfaces: []string{"eth0"}}, []string{"eth0 has no usable IPv6"}},
		{"within the overlay", UnderlayOptions{IPv4: true, Interfaces: []string{"eth1"}, Overlay: []netip.Prefix{netip.MustParsePrefix("198.51.0.0/16"), netip.MustParsePrefix("169.254.0.0/16")}},
			[]string{"198.51.100.3 is within the overlay network 198.51.0.0/16"}},
		{"a regexp that matches nothing", UnderlayOptions{IPv4: true, Regexes: []string{"^wlan"}}, []string{`"^wlan": matches no address and no interface name`}},
		{"all faults of the options at once", UnderlayOptions{Regexes: []string{"("}, PublicIP: addr("::1"), PublicIPv6: addr("192.0.2.1")},
			[]string{"--iface-regex", "--public-ip ::1", "--public-ipv6 192.0.2.1", "neither IPv4 nor IPv6"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := choose(host(), c.o)
			if err == nil {
				t.Fatalf("chose %+v", u)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
		})
	}
	bare := host()
	bare.defaults = nil
	if _, err := choose(bare, UnderlayOptions{IPv4: true}); !errors.Is(err, ErrNoUnderlay) || !strings.Contains(err.Error(), "no default route") {
		t.Errorf("without default route: %v", err)
	}
	unreachable := host()
	unreachable.reach = kernel.ReachInfo{Err: errors.New("network is unreachable")}
	if _, err := choose(unreachable, UnderlayOptions{IPv4: true, CanReach: addr("8.8.8.8")}); err == nil || !strings.Contains(err.Error(), "8.8.8.8: no route to it: network is unreachable") {
		t.Errorf("unreachable: %v", err)
	}
}

func TestUnadvertised(t *testing.T) {
	u := Underlay{Addr4: addr("192.0.2.1"), Ext4: addr("203.0.113.1"), Addr6: addr("2001:db8::1"), Ext6: addr("2001:db8::1")}
	if got := u.Unadvertised(); len(got) != 1 || got[0] != addr("192.0.2.1") {
		t.Errorf("got %v", got)
	}
}

func TestFollow(t *testing.T) {
	chosen := Underlay{Link: "eth0", Index: 2, MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}
	o := UnderlayOptions{IPv4: true, IPv6: true}
	without := func(l listing, gone ...string) listing {
		var as []kernel.AddrInfo
	next:
		for _, a := range l.addrs {
			for _, g := range gone {
				if a.Addr == addr(g) {
					continue next
				}
			}
			as = append(as, a)
		}
		l.addrs = as
		return l
	}
	other := chosen
	other.Addr4, other.Ext4 = addr("192.0.2.10"), addr("192.0.2.10")
	nat := chosen
	nat.Ext4 = addr("203.0.113.99")

	if now, lost := chosen.refreshed(chosen, host(), o, false); now != chosen || lost != "" {
		t.Errorf("nothing changed: %+v %q", now, lost)
	}
	l := without(host(), "192.0.2.11")
	if now, lost := chosen.refreshed(chosen, l, o, false); now != chosen || lost != "link eth0 has no address 192.0.2.11" {
		t.Errorf("address lost, in the time of grace: %+v %q", now, lost)
	}
	if now, lost := chosen.refreshed(chosen, l, o, true); now != other || lost != "" {
		t.Errorf("address lost for long: %+v %q", now, lost)
	}
	if now, lost := other.refreshed(chosen, l, o, false); now != other || lost != "" {
		t.Errorf("stays on the replacement: %+v %q", now, lost)
	}
	if now, lost := other.refreshed(chosen, host(), o, false); now != chosen || lost != "" {
		t.Errorf("address back: %+v %q", now, lost)
	}
	behind := o
	behind.PublicIP = nat.Ext4
	if now, _ := nat.refreshed(nat, l, behind, true); now.Addr4 != other.Addr4 || now.Ext4 != nat.Ext4 {
		t.Errorf("behind NAT the advertised address stays: %+v", now)
	}
	if _, lost := chosen.refreshed(chosen, without(l, "192.0.2.10"), o, true); lost == "" {
		t.Error("no address left, and that is not said")
	}
	gone := host()
	gone.links = gone.links[:1]
	if now, lost := chosen.refreshed(chosen, gone, o, true); now != chosen || lost != "link eth0 is gone" {
		t.Errorf("link gone: %+v %q", now, lost)
	}
	down := host()
	down.links[1].up, down.links[1].mtu, down.links[1].index = false, 1400, 12
	down.addrs[4].Index = 12
	if now, lost := chosen.refreshed(chosen, down, o, false); now.MTU != 1400 || now.Index != 12 || lost != "link eth0 is down" {
		t.Errorf("link down and anew: %+v %q", now, lost)
	}
	late := host()
	late.addrs = append(late.addrs, kernel.AddrInfo{Index: 2, Addr: addr("2001:db8::5")})
	if now, lost := chosen.refreshed(chosen, late, o, false); now.Addr6 != addr("2001:db8::5") || now.Ext6 != now.Addr6 || lost != "" {
		t.Errorf("IPv6 came late: %+v %q", now, lost)
	}
}
