package underlay

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
)

// link is one that is up, but eth2; weft's has its alias.
func link(index int, name string, mtu int) kernel.Device {
	d := kernel.Device{Index: index, Name: name, MTU: mtu, Up: name != "eth2"}
	if name == "flannel0" {
		d.Alias = kernel.Alias
	}
	return d
}

// host is a listing with two underlay links, an overlay device and lo.
func host() listing {
	return listing{
		links: []kernel.Device{
			link(1, "lo", 65536), link(2, "eth0", 1500), link(3, "eth1", 9000), link(4, "eth2", 1500),
			link(5, "flannel0", 1472),
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
	eth0 := Link{Name: "eth0", Index: 2, MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}
	eth1 := Link{Name: "eth1", Index: 3, MTU: 9000, Addr4: addr("198.51.100.3"), Ext4: addr("198.51.100.3")}
	dual := eth1
	dual.Addr6, dual.Ext6 = addr("2001:db8:1::3"), addr("2001:db8:1::3")
	with := func(u Link, change func(*Link)) Link { change(&u); return u }
	v4 := Options{IPv4: true}
	opt := func(o Options, change func(*Options)) Options { change(&o); return o }

	for _, c := range []struct {
		name string
		o    Options
		want Link
	}{
		{"default route with the lowest metric", v4, eth0},
		{"dual stack prefers the link with both", Options{IPv4: true, IPv6: true}, dual},
		{"IPv6 only", Options{IPv6: true},
			Link{Name: "eth1", Index: 3, MTU: 9000, Addr6: addr("2001:db8:1::3"), Ext6: addr("2001:db8:1::3")}},
		{"by name", opt(v4, func(o *Options) { o.Interfaces = []string{"eth1"} }), eth1},
		{"by name, in order, first that passes",
			opt(v4, func(o *Options) { o.Interfaces = []string{"none", "eth2", "eth1", "eth0"} }), eth1},
		{"by address", opt(v4, func(o *Options) { o.Interfaces = []string{"192.0.2.10"} }),
			with(eth0, func(u *Link) { u.Addr4, u.Ext4 = addr("192.0.2.10"), addr("192.0.2.10") })},
		{"by an IPv6 address, with an IPv4 one of the same link",
			Options{IPv4: true, IPv6: true, Interfaces: []string{"2001:db8:1::7e"}},
			with(dual, func(u *Link) { u.Addr6, u.Ext6 = addr("2001:db8:1::7e"), addr("2001:db8:1::7e") })},
		{"by a name of one family in dual stack", Options{IPv4: true, IPv6: true, Interfaces: []string{"eth0"}},
			eth0},
		{"regexp on an address", opt(v4, func(o *Options) { o.Regexes = []string{`^198\.`} }), eth1},
		{"regexp is unanchored and matches names last", opt(v4, func(o *Options) { o.Regexes = []string{`th1`} }),
			eth1},
		{"regexp that matches the overlay's address too",
			opt(v4, func(o *Options) { o.Regexes = []string{`^10\.`, `eth0`} }), eth0},
		{"interfaces go before regexps", opt(v4, func(o *Options) {
			o.Regexes, o.Interfaces = []string{"eth1"}, []string{"eth0"}
		}), eth0},
		{"can reach", opt(v4, func(o *Options) { o.CanReach = addr("8.8.8.8") }), eth1},
		{"public address that is local chooses the link",
			opt(v4, func(o *Options) { o.PublicIP = addr("198.51.100.3") }), eth1},
		{"public address behind NAT is advertised only",
			opt(v4, func(o *Options) { o.PublicIP = addr("203.0.113.99") }),
			with(eth0, func(u *Link) { u.Ext4 = addr("203.0.113.99") })},
		{"public address with a named interface", opt(v4, func(o *Options) {
			o.Interfaces, o.PublicIP = []string{"eth1"}, addr("203.0.113.99")
		}), with(eth1, func(u *Link) { u.Ext4 = addr("203.0.113.99") })},
		{"public address of the named interface is the local one as well", opt(v4, func(o *Options) {
			o.Interfaces, o.PublicIP = []string{"eth0"}, addr("192.0.2.10")
		}), with(eth0, func(u *Link) { u.Addr4, u.Ext4 = addr("192.0.2.10"), addr("192.0.2.10") })},
		{"public IPv6 address behind a router", Options{IPv4: true, IPv6: true, PublicIPv6: addr("2001:db8:99::1")},
			with(dual, func(u *Link) { u.Ext6 = addr("2001:db8:99::1") })},
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
		o    Options
		says []string
	}{
		{"every candidate with its reason",
			Options{IPv4: true, Interfaces: []string{"none", "eth2", "flannel0", "lo"}},
			[]string{"--iface none: no such interface; there are lo, eth0", "eth2", "own device", "127.0.0.1",
				"--iface ADDRESS"}},
		{"address that is not local", Options{IPv4: true, Interfaces: []string{"203.0.113.99"}},
			[]string{"interface", "--public-ip"}},
		{"no IPv6 that can be used", Options{IPv6: true, Interfaces: []string{"eth0"}},
			[]string{"fe80::2 is link-local", "duplicate", "deprecated"}},
		{"all families wanted", Options{IPv4: true, IPv6: true, AllFamilies: true, Interfaces: []string{"eth0"}},
			[]string{"eth0"}},
		{"within the overlay", Options{IPv4: true, Interfaces: []string{"eth1"},
			Overlay: []netip.Prefix{netip.MustParsePrefix("198.51.0.0/16"), netip.MustParsePrefix("169.254.0.0/16")}},
			[]string{"198.51.0.0/16"}},
		{"a regexp that matches nothing", Options{IPv4: true, Regexes: []string{"^wlan"}}, []string{"interface"}},
		{"all faults of the options at once", Options{Regexes: []string{"("}, PublicIP: addr("::1"),
			PublicIPv6: addr("192.0.2.1")},
			[]string{"--iface-regex", "--public-ip ::1", "--public-ipv6 192.0.2.1", "neither"}},
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
	if _, err := choose(bare, Options{IPv4: true}); !errors.Is(err, ErrNone) ||
		!strings.Contains(err.Error(), "default") {
		t.Errorf("without default route: %v", err)
	}
	unreachable := host()
	unreachable.reach = kernel.ReachInfo{Err: errors.New("network is unreachable")}
	if _, err := choose(unreachable, Options{IPv4: true, CanReach: addr("8.8.8.8")}); err == nil ||
		!strings.Contains(err.Error(), "8.8.8.8") {
		t.Errorf("unreachable: %v", err)
	}
}

func TestUnadvertised(t *testing.T) {
	u := Link{Addr4: addr("192.0.2.1"), Ext4: addr("203.0.113.1"), Addr6: addr("2001:db8::1"),
		Ext6: addr("2001:db8::1")}
	if got := u.Unadvertised(); len(got) != 1 || got[0] != addr("192.0.2.1") {
		t.Errorf("got %v", got)
	}
}
