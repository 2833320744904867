package routing

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

func TestVTEPMAC(t *testing.T) {
	seen := map[kernel.MAC]string{}
	for _, node := range []string{"a", "b"} {
		for _, six := range []bool{false, true} {
			for _, vni := range []uint32{1, 2} {
				m := vtepMAC(node, six, vni, nil)
				name := fmt.Sprint(node, six, vni)
				if seen[m] != "" || m[0]&3 != 2 || m != vtepMAC(node, six, vni, nil) {
					t.Errorf("%s: %v, also %s's", name, m, seen[m])
				}
				seen[m] = name
			}
		}
	}
	// What peers have in their tables must not change with the program's version.
	if m := vtepMAC("a", false, 1, nil).String(); m != "c2:46:fe:d4:f5:6d" {
		t.Errorf("node a has %s", m)
	}
	if m := vtepMAC("a", false, 1, &[2]byte{0x0e, 0x2a}); m[0] != 0x0e || m[1] != 0x2a {
		t.Errorf("with a prefix: %v", m)
	}
	if got := string(vtepData(1, mac("c6:d2:32:6f:8f:44"))); got != `{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}` {
		t.Errorf("BackendData %s", got)
	}
}

// vxlanPeer is a record of a node N as flannel writes it.
func vxlanPeer(n int) lease.Record {
	return lease.Record{
		Subnets: lease.Subnets{V4: pfx(fmt.Sprintf("10.5.%d.0/24", n)),
			V6: pfx(fmt.Sprintf("fd00:5:0:%d::/64", n))},
		Attrs: lease.Attrs{
			PublicIP: addr(fmt.Sprintf("192.0.2.%d", n)), PublicIPv6: addr(fmt.Sprintf("2001:db8::%d", n)),
			BackendType:   typeVXLAN,
			BackendData:   fmt.Appendf(nil, `{"VNI":1,"VtepMAC":"0e:00:00:00:04:%02x"}`, n),
			BackendV6Data: fmt.Appendf(nil, `{"VNI":1,"VtepMAC":"0e:00:00:00:06:%02x"}`, n),
		},
	}
}

func vxlanSituation(peers ...lease.Record) situation {
	s := situation{
		set: lease.Set{
			Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4, IPv6Network: net6,
				SubnetLen: 24, IPv6SubnetLen: 64},
			Own: vxlanPeer(1), Peers: peers,
		},
		under: underlay.Link{Name: "eth0", Index: 3, MTU: 1500, Addr4: addr("192.0.2.1"),
			Addr6: addr("2001:db8::1"), Ext4: addr("192.0.2.1"), Ext6: addr("2001:db8::1")},
		mtu: 1430, hops: map[netip.Addr]kernel.Hop{},
	}
	for _, p := range peers {
		s.hops[p.PublicIP], s.hops[p.PublicIPv6] = kernel.Hop{Link: "eth0"}, kernel.Hop{Link: "eth0"}
	}
	return s
}

// reachedText is a line for each subnet.
func reachedText(rs []Reached) string {
	var b strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&b, "%v %v via %v", r.Subnet, r.How, r.Via)
		if r.Reason != "" {
			b.WriteString(" because")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func testVXLAN(direct bool) *vxlan {
	return &vxlan{VNI: 1, Port: 8472, DirectRouting: direct, enabled4: true, enabled6: true,
		mac4: mac("0e:00:00:00:04:01"), mac6: mac("0e:00:00:00:06:01")}
}

func TestVXLANPeers(t *testing.T) {
	edit := func(n int, f func(*lease.Record)) lease.Record { r := vxlanPeer(n); f(&r); return r }
	four := func(n int, f func(*lease.Record)) lease.Record {
		return edit(n, func(r *lease.Record) { r.V6 = netip.Prefix{}; f(r) })
	}
	for _, c := range []struct {
		name   string
		direct bool
		peer   lease.Record
		hops   map[string]kernel.Hop
		want   string
		routes string
	}{
		{"tunnel", false, vxlanPeer(2), nil, "10.5.2.0/24 tunnel via 192.0.2.2\nfd00:5:0:2::/64 tunnel via " +
			"2001:db8::2\n", "10.5.2.0 fd00:5:0:2::"},
		{"both direct", true, vxlanPeer(2), nil,
			"10.5.2.0/24 route via 192.0.2.2\nfd00:5:0:2::/64 route via 2001:db8::2\n", "192.0.2.2 2001:db8::2"},
		{"one family behind a router", true, vxlanPeer(2),
			map[string]kernel.Hop{"192.0.2.2": {Link: "eth0", Gateway: addr("192.0.2.254")}},
			"10.5.2.0/24 tunnel via 192.0.2.2 because\nfd00:5:0:2::/64 route via 2001:db8::2\n",
			"10.5.2.0 2001:db8::2"},
		{"on another link", true, four(2, func(*lease.Record) {}),
			map[string]kernel.Hop{"192.0.2.2": {Link: "eth1"}},
			"10.5.2.0/24 tunnel via 192.0.2.2 because\n", "10.5.2.0"},
		{"an IPv4 node in a network of both", false,
			four(2, func(r *lease.Record) { r.PublicIPv6, r.BackendV6Data = netip.Addr{}, nil }), nil,
			"10.5.2.0/24 tunnel via 192.0.2.2\n", "10.5.2.0"},
		{"a subnet without data", false, edit(2, func(r *lease.Record) { r.BackendV6Data = nil }), nil,
			"10.5.2.0/24 tunnel via 192.0.2.2\nfd00:5:0:2::/64 skipped via 2001:db8::2 because\n", "10.5.2.0"},
		{"another backend", false, four(2, func(r *lease.Record) { r.BackendType = "" }), nil,
			"10.5.2.0/24 skipped via 192.0.2.2 because\n", ""},
		{"another VNI", false, four(2, func(r *lease.Record) {
			r.BackendData = []byte(`{"VNI":7,"VtepMAC":"0e:00:00:00:04:02"}`)
		}), nil,
			"10.5.2.0/24 skipped via 192.0.2.2 because\n", ""},
		{"early flannel's data", false, four(2, func(r *lease.Record) {
			r.BackendData = []byte(`{"VtepMAC":"0e:00:00:00:04:02"}`)
		}), nil,
			"10.5.2.0/24 tunnel via 192.0.2.2\n", "10.5.2.0"},
		{"our MAC", false, four(2, func(r *lease.Record) { r.BackendData = vtepData(1, mac("0e:00:00:00:04:01")) }),
			nil,
			"10.5.2.0/24 skipped via 192.0.2.2 because\n", ""},
		{"garbage", false, four(2, func(r *lease.Record) { r.BackendData = []byte(`"$(reboot)"`) }), nil,
			"10.5.2.0/24 skipped via 192.0.2.2 because\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := vxlanSituation(c.peer)
			for a, h := range c.hops {
				s.hops[addr(a)] = h
			}
			d := testVXLAN(c.direct).want(s)
			if got := reachedText(d.reached(true)); got != c.want {
				t.Errorf("reached\n%swant\n%s", got, c.want)
			}
			var vias []string
			for _, r := range d.Routes {
				vias = append(vias, r.Gateway.String())
			}
			if strings.Join(vias, " ") != c.routes || len(d.Neighs) != len(d.FDBs) {
				t.Errorf("routes via %q, %+v", vias, d.State)
			}
		})
	}
	twice := testVXLAN(false).want(vxlanSituation(four(2, func(*lease.Record) {}),
		four(3, func(r *lease.Record) { r.BackendData = vtepData(1, mac("0e:00:00:00:04:02")) })))
	if n := usedPeers(twice.reached(true)); n != 1 || !strings.Contains(skippedOf(twice.reached(true))[0].Reason,
		"10.5.2.0/24's too") {
		t.Errorf("one MAC, two nodes:\n%s", reachedText(twice.reached(true)))
	}
	small := four(2, func(r *lease.Record) { r.Weft = &lease.Weft{MTU: 1300} })
	if r := testVXLAN(false).want(vxlanSituation(small)).Routes; r[0].MTU != 1300 {
		t.Errorf("a peer that takes 1300: %+v", r)
	}
}

func FuzzParseVTEPData(f *testing.F) {
	f.Add([]byte(`{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}`))
	f.Add([]byte(`{"VtepMAC":"c6:d2:32:6f:8f:44"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseVTEPData(b, 1)
		if err != nil {
			return
		}
		if again, err := parseVTEPData(vtepData(1, m), 1); err != nil || again != m {
			t.Errorf("%s: %v, then %v, %v", b, m, again, err)
		}
	})
}
