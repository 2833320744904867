package routing

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
	"weft/routing/underlay"
)

// TestEncryptWays has what becomes of each peer: plain routes only between links' own nodes that both say so,
// and everybody else by WireGuard, or not at all.
func TestEncryptWays(t *testing.T) {
	own := wireguard.PublicKey{99}
	peer := func(n byte, backend string, recv ...string) lease.Record {
		r := lease.Record{
			Subnets: lease.Subnets{V4: netip.MustParsePrefix(fmt.Sprintf("10.5.%d.0/24", n)),
				V6: netip.MustParsePrefix(fmt.Sprintf("fd00:5:0:%x::/64", n))},
			Attrs: lease.Attrs{PublicIP: netip.AddrFrom4([4]byte{192, 0, 2, n}),
				PublicIPv6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", n)), BackendType: backend},
		}
		if backend == "wireguard" {
			r.BackendData, r.BackendV6Data = wireGuardData(wireguard.PublicKey{n}, 51820),
				wireGuardData(wireguard.PublicKey{n}, 51821)
		}
		if recv != nil {
			r.Weft = &lease.Weft{Recv: recv}
		}
		return r
	}
	peers := []lease.Record{
		peer(1, "wireguard", RecvPlain), // on the link
		peer(2, "wireguard", RecvPlain), // behind a router
		peer(3, "wireguard", "probe"),   // on the link, and takes nothing in plain
		peer(4, "wireguard"),            // flannel's, on the link
		peer(5, "vxlan", RecvPlain),     // of a network that is not encrypted
		peer(6, "wireguard", RecvPlain), // the kernel was not asked yet
	}
	s := situation{
		set: lease.Set{
			Config: lease.NetworkConfig{Network: netip.MustParsePrefix("10.5.0.0/16"),
				IPv6Network: netip.MustParsePrefix("fd00:5::/48"), EnableIPv4: true, EnableIPv6: true},
			Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.5.99.0/24"),
				V6: netip.MustParsePrefix("fd00:5:0:99::/64")}},
			Peers: peers,
		},
		under: underlay.Link{Name: "eth0", Index: 2, MTU: 1500, Addr4: netip.MustParseAddr("192.0.2.99"),
			Addr6: netip.MustParseAddr("2001:db8::99"),
			Ext4:  netip.MustParseAddr("192.0.2.99"), Ext6: netip.MustParseAddr("2001:db8::99")},
		mtu: 1420, hops: map[netip.Addr]kernel.Hop{},
	}
	for _, p := range peers[:5] {
		for _, a := range []netip.Addr{p.PublicIP, p.PublicIPv6} {
			s.hops[a] = kernel.Hop{Link: "eth0"}
			if p.PublicIP == peers[1].PublicIP {
				s.hops[a] = kernel.Hop{Link: "eth0", Gateway: netip.MustParseAddr("192.0.2.254")}
			}
		}
	}
	for word, want := range map[string][]How{
		encryptAlways:       {HowTunnel, HowTunnel, HowTunnel, HowTunnel, HowSkipped, HowTunnel},
		encryptBetweenLinks: {HowRoute, HowTunnel, HowTunnel, HowTunnel, HowSkipped, HowTunnel},
	} {
		w := wireGuard{Mode: modeSeparate, ListenPort: 51820, ListenPortV6: 51821,
			seals:    seals{encrypt: word, allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
			enabled4: true, enabled6: true, public: func() wireguard.PublicKey { return own }}
		if w.Facts().asksHops != (word == encryptBetweenLinks) || w.Facts().record != "wireguard" {
			t.Errorf("%+v", w.Facts())
		}
		d := w.want(s)
		var plain []string
		for i, r := range d.reached(true) {
			if r.Subnet.Addr().Is6() {
				if four := d.reached(true)[i-1]; four.How != r.How {
					t.Errorf("%s: %v has %v, and %v %v", word, four.Subnet, four.How, r.Subnet, r.How)
				}
			} else if r.How != want[i/2] || word == encryptBetweenLinks && r.Reason == "" {
				t.Errorf("%s: %+v, want %v", word, r, want[i/2])
			}
			if r.How == HowRoute {
				plain = append(plain, r.Subnet.String())
			}
		}
		seal := w.seal("eth0", d.reached(true))
		if strings.Trim(fmt.Sprint(seal.Plain), "[]") != strings.Join(plain, " ") ||
			len(seal.Hosts) != len(plain) ||
			fmt.Sprint(seal.Devices) != "[flannel-wg flannel-wg-v6]" || seal.Underlay != "eth0" ||
			fmt.Sprint(seal.Admitted) != "[203.0.113.0/24]" {
			t.Errorf("%s: %+v, want %v in plain", word, seal, plain)
		}
		// A plain route leads to nobody else, and everybody with a key is a peer of the devices all the same: it
		// may encrypt what it sends.
		routes := 0
		for _, r := range d.Routes {
			if r.Link == "eth0" {
				routes++
				if !slices.Contains(plain, r.Dst.String()) {
					t.Errorf("%s: route %v", word, r)
				}
			}
		}
		devices := d.driven.([]wireGuardDevice)
		if routes != len(plain) || len(devices) != 2 || len(devices[0].Peers) != 5 || len(devices[1].Peers) != 5 {
			t.Errorf("%s: %d plain routes of %d, devices %+v", word, routes, len(plain), devices)
		}
	}
	plain := new(wireGuard)
	if plain.seal("eth0", nil) != nil || plain.Facts().asksHops {
		t.Error("type wireguard has a seal")
	}
}

// TestEncryptBehindATranslation: who is told to peers by an address that its link does not have takes nothing
// in plain, and is sent nothing so, in the family in which that is so.
func TestEncryptBehindATranslation(t *testing.T) {
	a4, a6, outer := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("203.0.113.1")
	own := underlay.Link{Name: "eth0", Addr4: a4, Addr6: a6, Ext4: a4, Ext6: a6}
	told := own
	told.Ext4 = outer
	told6 := own
	told6.Ext6 = netip.MustParseAddr("2001:db8:1::1")
	for _, c := range []struct {
		word  string
		under underlay.Link
		away  bool
		want  bool
	}{{encryptBetweenLinks, own, false, true}, {encryptBetweenLinks, own, true, false},
		{encryptBetweenLinks, told, false, false}, {encryptBetweenLinks, told6, false, false},
		{encryptAlways, own, false, false}, {"", own, false, false}} {
		if got := (seals{encrypt: c.word}).takesPlain(c.under, c.away); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
	peer4, peer6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	w := wireGuard{seals: seals{encrypt: encryptBetweenLinks}}
	for _, c := range []struct {
		under  underlay.Link
		addrs  []netip.Addr
		f4, f6 How
	}{
		{own, nil, HowRoute, HowRoute},
		{own, []netip.Addr{netip.MustParseAddr("10.0.0.2")}, HowTunnel, HowRoute},
		{own, []netip.Addr{netip.MustParseAddr("fd00::2")}, HowRoute, HowTunnel},
		{told, nil, HowTunnel, HowTunnel},
	} {
		r := &lease.Record{Attrs: lease.Attrs{Weft: &lease.Weft{Recv: []string{RecvPlain}, Addrs: c.addrs}}}
		s := situation{under: c.under, hops: map[netip.Addr]kernel.Hop{peer4: {Link: "eth0"},
			peer6: {Link: "eth0"}}}
		for six, want := range map[bool]How{false: c.f4, true: c.f6} {
			x := way{Reached: Reached{How: HowTunnel}, r: r, six: six, public: peer4, local: a4}
			if six {
				x.public, x.local = peer6, a6
			}
			if w.plainWay(&x, s); x.How != want || x.Reason == "" {
				t.Errorf("%v, %v: %v %s, want %v", c.under, c.addrs, x.How, x.Reason, want)
			}
		}
	}
}
