package kernel

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlan(t *testing.T) {
	const dev = "flannel0"
	ours := Device{Name: dev, Alias: Alias, MTU: 1472, TxQueueLen: 500, Up: true}
	own4 := Addr{dev, pfx("10.5.1.0/32")}
	route4 := Route{Dst: pfx("10.5.0.0/16"), Link: dev, Scope: ScopeLink, Protocol: RouteProtocol}
	route6 := Route{Dst: pfx("fd00:5::/48"), Link: dev, Metric: 1024, Protocol: RouteProtocol}
	flannels := route4
	flannels.Scope, flannels.Protocol = ScopeUniverse, ProtoBoot
	state := func(l []Device, a []Addr, r []Route) State { return State{Devices: l, Addrs: a, Routes: r} }
	want := state([]Device{ours}, []Addr{own4}, []Route{route4, route6})
	own := Ownership{Links: []string{dev}, Networks: []netip.Prefix{pfx("10.5.0.0/16"), pfx("fd00:5::/48")},
		Adopts: func(r Route) bool {
			return r.Protocol == ProtoBoot && r.Link == dev &&
				r.Dst == pfx("10.5.0.0/16")
		}}
	edit := func(r Route, f func(*Route)) Route { f(&r); return r }
	fresh := Device{Name: dev, MTU: 1500, TxQueueLen: 500}
	longer, longerOff := ours, ours
	longer.TxQueueLen, longerOff.TxQueueLen, longerOff.Up = 5000, 5000, false
	byHand := edit(route4, func(r *Route) { r.Protocol = 4 }) // RTPROT_STATIC
	stray := edit(route4, func(r *Route) {
		r.Dst = pfx("10.5.9.0/24")
		r.Link = "eth0"
		r.Gateway = addr("192.0.2.9")
	})

	set := func(d Device, names ...string) []DeviceChange { return []DeviceChange{{Want: d, Set: names}} }
	for _, c := range []struct {
		name string
		have State
		own  Ownership
		want Changes
	}{
		{"new device", State{Devices: []Device{fresh}}, own,
			Changes{Devices: set(ours, "mtu", "alias", "up"), AddAddrs: []Addr{own4}, AddRoutes: []Route{route4, route6}}},
		{"flannel's device is adopted", state([]Device{fresh}, []Addr{own4}, nil), own,
			Changes{Devices: set(ours, "mtu", "alias", "up"), AddRoutes: []Route{route4, route6}, Adopted: []string{"link flannel0"}}},
		{"all in place", want, own, Changes{}},
		{"the operator's longer queue stays", State{Devices: []Device{longer}, Addrs: want.Addrs, Routes: want.Routes},
			own, Changes{}},
		{"also while something else is put right", State{Devices: []Device{longerOff}, Addrs: want.Addrs,
			Routes: want.Routes}, own, Changes{Devices: set(longer, "up")}},
		{"no device yet: that is the caller's", State{}, own,
			Changes{AddAddrs: []Addr{own4}, AddRoutes: []Route{route4, route6}}},
		{"drift of every kind", State{Devices: []Device{{Name: dev, Alias: Alias, MTU: 1500, TxQueueLen: 500}},
			Routes: []Route{route6}}, own,
			Changes{Devices: set(ours, "mtu", "up"), AddAddrs: []Addr{own4}, AddRoutes: []Route{route4}}},
		{"flannel's route is taken over in place", state([]Device{ours}, []Addr{own4}, []Route{flannels, route6}),
			own,
			Changes{ReplaceRoutes: []Route{route4}, Adopted: []string{"route 10.5.0.0/16 dev flannel0"}}},
		{"our own route with another shape is replaced in place",
			state([]Device{ours}, []Addr{own4}, []Route{edit(route4, func(r *Route) { r.Scope = ScopeUniverse }),
				route6}), own,
			Changes{ReplaceRoutes: []Route{route4}}},
		{"a foreign route in the place is not touched", state([]Device{ours}, []Addr{own4}, []Route{byHand, route6}),
			own,
			Changes{Conflicts: []Conflict{{route4, byHand}}}},
		{"a foreign route by another device with flannel's protocol neither",
			state([]Device{ours}, []Addr{own4}, []Route{edit(flannels, func(r *Route) { r.Link = "flannel9" }), route6}),
			own,
			Changes{Conflicts: []Conflict{{route4, edit(flannels, func(r *Route) { r.Link = "flannel9" })}}}},
		{"leftovers of ours go: old address, old network, route of an earlier backend",
			state([]Device{ours}, []Addr{own4, {dev, pfx("10.5.2.0/32")}},
				[]Route{route4, route6, stray, edit(route4, func(r *Route) { r.Dst = pfx("10.6.0.0/16") })}), own,
			Changes{DelAddrs: []Addr{{dev, pfx("10.5.2.0/32")}},
				DelRoutes: []Route{stray, edit(route4, func(r *Route) { r.Dst = pfx("10.6.0.0/16") })}}},
		{"what others put on our device stays",
			state([]Device{ours}, []Addr{own4, {dev, pfx("172.16.0.1/32")}, {dev, pfx("fe80::1/64")}},
				[]Route{route4, route6, edit(byHand, func(r *Route) { r.Dst = pfx("10.5.7.0/24") })}), own, Changes{}},
		{"another instance's route, with our mark, stays",
			state([]Device{ours}, []Addr{own4}, []Route{route4, route6,
				edit(route4, func(r *Route) { r.Dst = pfx("10.9.0.0/16"); r.Link = "flannel1" })}), own, Changes{}},
		{"the right address with a wrong length is added, then the wrong one goes",
			state([]Device{ours}, []Addr{{dev, pfx("10.5.1.0/24")}}, []Route{route4, route6}), own,
			Changes{AddAddrs: []Addr{own4}, DelAddrs: []Addr{{dev, pfx("10.5.1.0/24")}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(c.have, want, c.own)
			got.Devices = slices.DeleteFunc(got.Devices, func(d DeviceChange) bool { return d.Len() == 0 })
			if d := cmp.Diff(c.want, got, compareState); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			slices.Reverse(c.have.Addrs)
			slices.Reverse(c.have.Routes)
			again := Plan(c.have, want, c.own)
			again.Devices = slices.DeleteFunc(again.Devices, func(d DeviceChange) bool { return d.Len() == 0 })
			if cmp.Diff(got, again, compareState) != "" {
				t.Errorf("the order of the kernel's listing matters: %+v", again)
			}
		})
	}
}

// recorder is a kernel that notes calls, and fails those that it is told to.
type recorder struct {
	calls []string
	fail  string
}

func (r *recorder) note(s string) error {
	r.calls = append(r.calls, s)
	if s == r.fail {
		return errors.New("no")
	}
	return nil
}
func (r *recorder) AddAddr(a Addr) error       { return r.note("+addr " + a.Prefix.String()) }
func (r *recorder) DelAddr(a Addr) error       { return r.note("-addr " + a.Prefix.String()) }
func (r *recorder) AddRoute(x Route) error     { return r.note("+route " + x.Dst.String()) }
func (r *recorder) ReplaceRoute(x Route) error { return r.note("=route " + x.Dst.String()) }
func (r *recorder) DelRoute(x Route) error     { return r.note("-route " + x.Dst.String()) }

var _ changer = (*recorder)(nil)

// A route never leads to an entry that is not there yet, there is no moment without a route, and one bad change
// costs only itself.
func TestApplyAddsBeforeDeletesAndTriesAll(t *testing.T) {
	c := Changes{
		AddAddrs:      []Addr{{"a", pfx("10.0.0.1/32")}},
		AddRoutes:     []Route{{Dst: pfx("10.1.0.0/16")}},
		ReplaceRoutes: []Route{{Dst: pfx("10.2.0.0/16")}}, DelRoutes: []Route{{Dst: pfx("10.3.0.0/16")}},
		SetNeighs: []Neigh{{Addr: addr("10.1.0.0")}}, DelNeighs: []Neigh{{Addr: addr("10.3.0.0")}},
		SetFDBs: []FDB{{Dst: addr("192.0.2.2")}}, DelFDBs: []FDB{{Dst: addr("192.0.2.3")}},
		DelAddrs:  []Addr{{"a", pfx("10.0.0.2/32")}},
		Conflicts: []Conflict{{Want: Route{Dst: pfx("10.4.0.0/16")}, Have: Route{Link: "x", Protocol: 4}}},
	}
	k := &recorder{fail: "+addr 10.0.0.1/32"}
	result, err := Apply(k, c)
	want := []string{"+addr 10.0.0.1/32", "=neigh 10.1.0.0", "=fdb 192.0.2.2", "+route 10.1.0.0/16",
		"=route 10.2.0.0/16", "-route 10.3.0.0/16", "-neigh 10.3.0.0", "-fdb 192.0.2.3", "-addr 10.0.0.2/32"}
	if !slices.Equal(k.calls, want) || result.Done != c.Len()-1 {
		t.Errorf("calls %q, %d done", k.calls, result.Done)
	}
	const says = "add address 10.0.0.1/32 dev a: no\nroute 10.4.0.0/16 is taken by one of protocol 4 dev x, " +
		"which is not ours: delete it, or stop what made it"
	if err == nil || err.Error() != says {
		t.Errorf("error %q", err)
	}
}
