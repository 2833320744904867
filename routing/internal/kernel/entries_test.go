package kernel

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMAC(t *testing.T) {
	for s, want := range map[string]string{
		"c6:d2:32:6f:8f:44":       "c6:d2:32:6f:8f:44",
		"C6:D2:32:6F:8F:44":       "c6:d2:32:6f:8f:44",
		"":                        "",
		"c6:d2:32:6f:8f":          "",
		"00:00:00:00:00:00":       "",
		"ff:ff:ff:ff:ff:ff":       "",
		"01:00:5e:00:00:01":       "",
		"c6:d2:32:6f:8f:44:00:01": "",
		"c6:d2:32:6f:8f:44 x":     "",
	} {
		m, err := ParseMAC(s)
		if (err == nil) != (want != "") || err == nil && m.String() != want {
			t.Errorf("%q: %v, %v", s, m, err)
		}
	}
}

func TestPlanEntries(t *testing.T) {
	const dev, dev6 = "flannel.1", "flannel-v6.1"
	m2, m3 := mac("0e:00:00:00:00:02"), mac("0e:00:00:00:00:03")
	own := Ownership{Links: []string{dev, dev6}, Networks: []netip.Prefix{net4, net6},
		Adopts: func(Route) bool { return false }}
	onLink := func(dst, via, link string) Route {
		r := PeerRoute(pfx(dst), addr(via), link, 0)
		r.OnLink = true
		return r
	}
	want := State{
		Addrs: []Addr{{dev6, pfx("fd00:5:0:1::/128")}, {dev, pfx("10.5.1.0/32")}}, // in the order of a plan
		Routes: []Route{onLink("10.5.2.0/24", "10.5.2.0", dev),
			PeerRoute(pfx("10.5.3.0/24"), addr("192.0.2.3"), "eth0", 1400)},
		Neighs: []Neigh{{dev, addr("10.5.2.0"), m2, true}},
		FDBs:   []FDB{{dev, m2, addr("192.0.2.2"), true}},
	}
	flannels := want.Routes[0]
	flannels.Protocol = ProtoBoot
	adopting := own
	adopting.SweepAdopted = true
	adopting.Adopts = func(r Route) bool { return r.Protocol == ProtoBoot && r.OnLink }
	stale := onLink("10.5.9.0/24", "10.5.9.0", dev)
	foreign := Route{Dst: pfx("10.5.8.0/24"), Link: "eth0", Gateway: addr("192.0.2.8"), Protocol: ProtoBoot}

	for _, c := range []struct {
		name string
		have State
		own  Ownership
		want Changes
	}{
		{"nothing there", State{}, own, Changes{
			AddAddrs: want.Addrs, AddRoutes: want.Routes, SetNeighs: want.Neighs, SetFDBs: want.FDBs}},
		{"all in place", want, own, Changes{}},
		{"entries learnt, wrong and superfluous", State{
			Addrs: want.Addrs, Routes: want.Routes,
			Neighs: []Neigh{{dev, addr("10.5.2.0"), m3, false}, {dev, addr("10.5.7.0"), m3, true},
				{dev, addr("10.5.7.1"), m3, false},
				{dev6, addr("fe80::1"), m3, true}, {dev6, addr("fd00:5:0:9::"), m3, true},
				{"eth0", addr("10.5.7.2"), m3, true}},
			FDBs: []FDB{{dev, m2, addr("192.0.2.9"), true}, {dev, m3, addr("192.0.2.3"), true},
				{dev, mac("0e:00:00:00:00:04"), addr("192.0.2.4"), false},
				{dev, MAC{}, addr("192.0.2.5"), true}, {"vx9", m3, addr("192.0.2.3"), true}},
		}, own, Changes{
			SetNeighs: want.Neighs, SetFDBs: want.FDBs,
			DelNeighs: []Neigh{{dev6, addr("fd00:5:0:9::"), m3, true}, {dev, addr("10.5.7.0"), m3, true}},
			DelFDBs:   []FDB{{dev, m3, addr("192.0.2.3"), true}},
		}},
		{"an address of the other family's device is not confused", State{
			Addrs: []Addr{{dev, pfx("10.5.1.0/32")}, {dev, pfx("10.5.4.0/32")}, {dev6, pfx("fd00:5:0:1::/128")},
				{dev6, pfx("fe80::1/64")}},
			Routes: want.Routes, Neighs: want.Neighs, FDBs: want.FDBs,
		}, own, Changes{DelAddrs: []Addr{{dev, pfx("10.5.4.0/32")}}}},
		{"a peer's smaller MTU is set in place", State{
			Addrs: want.Addrs, Routes: []Route{want.Routes[0], PeerRoute(pfx("10.5.3.0/24"), addr("192.0.2.3"), "eth0",
				0)}, Neighs: want.Neighs, FDBs: want.FDBs,
		}, own, Changes{ReplaceRoutes: want.Routes[1:]}},
		{"stale routes of ours go, and those of others stay", State{
			Addrs: want.Addrs, Routes: append([]Route{stale, foreign}, want.Routes...), Neighs: want.Neighs,
			FDBs: want.FDBs,
		}, own, Changes{DelRoutes: []Route{stale}}},
		{"flannel's are taken over at the start", State{
			Addrs: want.Addrs, Routes: []Route{flannels, want.Routes[1],
				{Dst: pfx("10.5.9.0/24"), Gateway: addr("10.5.9.0"), Link: dev, OnLink: true, Protocol: ProtoBoot}},
			Neighs: want.Neighs, FDBs: want.FDBs,
		}, adopting, Changes{
			ReplaceRoutes: want.Routes[:1], Adopted: []string{"route 10.5.2.0/24 dev flannel.1"},
			DelRoutes: []Route{{Dst: pfx("10.5.9.0/24"), Gateway: addr("10.5.9.0"), Link: dev, OnLink: true,
				Protocol: ProtoBoot}},
		}},
		{"later the same shape is a conflict", State{
			Addrs: want.Addrs, Routes: []Route{flannels, want.Routes[1]}, Neighs: want.Neighs, FDBs: want.FDBs,
		}, own, Changes{Conflicts: []Conflict{{want.Routes[0], flannels}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(c.have, want, c.own)
			if d := cmp.Diff(c.want, got, compareState); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			c.have.Neighs, c.have.FDBs, c.have.Routes = slices.Clone(c.have.Neighs), slices.Clone(c.have.FDBs),
				slices.Clone(c.have.Routes)
			slices.Reverse(c.have.Neighs)
			slices.Reverse(c.have.FDBs)
			slices.Reverse(c.have.Routes)
			if again := Plan(c.have, want, c.own); cmp.Diff(got, again, compareState) != "" {
				t.Errorf("the order of the kernel's listing matters: %+v", again)
			}
		})
	}
}

func (r *recorder) SetNeigh(n Neigh) error { return r.note("=neigh " + n.Addr.String()) }
func (r *recorder) DelNeigh(n Neigh) error { return r.note("-neigh " + n.Addr.String()) }
func (r *recorder) SetFDB(f FDB) error     { return r.note("=fdb " + f.Dst.String()) }
func (r *recorder) DelFDB(f FDB) error     { return r.note("-fdb " + f.Dst.String()) }
