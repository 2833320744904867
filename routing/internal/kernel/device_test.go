package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStrange(t *testing.T) {
	for _, c := range []struct {
		alias string
		addrs []netip.Prefix
		ours  bool
	}{
		{"", nil, true}, {Alias, nil, true}, {"", []netip.Prefix{pfx("10.5.1.0/32")}, true},
		{Alias, []netip.Prefix{pfx("fe80::1/64")}, true},
		{Alias, []netip.Prefix{pfx("10.9.1.0/32"), pfx("10.5.1.0/32")}, true},
		{Alias, []netip.Prefix{pfx("10.9.1.0/32")}, false}, {"calico", []netip.Prefix{pfx("10.5.1.0/32")}, false},
	} {
		why := Strange(Device{Name: "flannel.1", Alias: c.alias}, c.addrs, []netip.Prefix{net4})
		if (why == "") != c.ours {
			t.Errorf("alias %q, %v: %q", c.alias, c.addrs, why)
		}
	}
}

// TestPlanOnDevices has what is on a device follow from what becomes of the device.
func TestPlanOnDevices(t *testing.T) {
	const dev, other = "flannel.1", "flannel-v6.1"
	m2 := mac("0e:00:00:00:00:02")
	vtep := Device{Name: dev, Kind: KindVXLAN, Index: 7, Alias: Alias, MAC: mac("0e:00:00:00:00:01"), MTU: 1450,
		Up: true, VNI: 1, Port: 8472, Under: 3, Local: addr("192.0.2.1")}
	edit := func(f func(*Device)) Device { v := vtep; f(&v); return v }
	route := PeerRoute(pfx("10.5.2.0/24"), addr("10.5.2.0"), dev, 0)
	plain := PeerRoute(pfx("10.5.3.0/24"), addr("192.0.2.3"), "eth0", 0)
	want := State{
		Devices: []Device{vtep}, Addrs: []Addr{{dev, pfx("10.5.1.0/32")}}, Routes: []Route{route, plain},
		Neighs: []Neigh{{dev, addr("10.5.2.0"), m2, true}}, FDBs: []FDB{{dev, m2, addr("192.0.2.2"), true}},
	}
	with := func(v Device) State { s := want; s.Devices = []Device{v}; return s }
	bare := Changes{AddAddrs: want.Addrs, SetNeighs: want.Neighs, SetFDBs: want.FDBs, AddRoutes: []Route{route}}
	flannels := Route{Dst: pfx("10.5.9.0/24"), Gateway: addr("10.5.9.0"), Link: dev, OnLink: true,
		Protocol: ProtoBoot}
	foreign := with(edit(func(v *Device) { v.Alias = "" }))
	foreign.Addrs, foreign.Routes = []Addr{{dev, pfx("10.9.1.0/32")}, {dev, pfx("10.9.2.0/32")}},
		[]Route{flannels, plain}
	own := Ownership{Links: []string{dev}, Networks: []netip.Prefix{net4, net6}, SweepAdopted: true,
		Adopts: func(r Route) bool { return r.Protocol == ProtoBoot && r.OnLink }}
	made := own
	made.Made = map[string]int{dev: 7}
	for _, c := range []struct {
		name string
		have State
		own  Ownership
		want Changes
	}{
		{"all in place", want, own, Changes{Devices: []DeviceChange{{Want: vtep}}}},
		{"no device", State{Routes: []Route{plain}}, own, func() Changes {
			c := bare
			c.Devices = []DeviceChange{{Want: vtep, Create: true}}
			return c
		}()},
		{"with one that has to go all that is on it goes", with(edit(func(v *Device) { v.Port = 4789 })), own,
			func() Changes {
				c := bare
				c.Devices = []DeviceChange{{Want: vtep, Recreate: "port 4789, want 8472"}}
				return c
			}()},
		{"with another MAC its neighbours are gone", with(edit(func(v *Device) { v.MAC[5] = 9 })), own,
			Changes{Devices: []DeviceChange{{Want: vtep, Set: []string{"mac"}}}, SetNeighs: want.Neighs}},
		{"flannel's", with(edit(func(v *Device) { v.Alias = "" })), own,
			Changes{Devices: []DeviceChange{{Want: vtep, Set: []string{"alias"}}}, Adopted: []string{"link " + dev}}},
		{"on a stranger's nothing is wanted or ours", foreign, own, Changes{Strangers: []Stranger{{dev,
			"link flannel.1 has the address 10.9.1.0/32, 10.9.2.0/32 of another network: choose another VNI, or ip " +
				"link del flannel.1 if nothing uses it"}}}},
		{"one that we brought up stays ours", foreign, made, Changes{
			Devices: []DeviceChange{{Want: vtep, Set: []string{"alias"}}}, AddAddrs: want.Addrs,
			AddRoutes: []Route{route},
			DelRoutes: []Route{flannels}, Adopted: []string{"link " + dev}}},
		{"another kind of link", State{Devices: []Device{{Name: dev, Kind: "bridge"}}, Routes: []Route{plain}},
			made, Changes{Strangers: []Stranger{{dev,
				"link flannel.1 is of type bridge, and not of type vxlan: ip link del flannel.1 if nothing uses it"}}}},
	} {
		if got := Plan(c.have, want, c.own); !cmp.Equal(got, c.want, compareState) {
			t.Errorf("%s (-want +got):\n%s", c.name, cmp.Diff(c.want, got, compareState))
		}
	}
	// What is wanted beside a stranger's device is not lost with it.
	two := want.With(State{Devices: []Device{edit(func(v *Device) { v.Name = other })},
		Addrs: []Addr{{other, pfx("fd00:5:0:1::/128")}}})
	got := Plan(foreign, two, own)
	if len(got.Devices) != 1 || !got.Devices[0].Create || !slices.Equal(got.AddAddrs, two.Addrs[1:]) {
		t.Errorf("%+v", got)
	}
}

func (r *recorder) DelLink(name string) error { return r.note("-link " + name) }
func (r *recorder) AddDevice(v Device) error  { return r.note("+link " + v.Name) }
func (r *recorder) Settle(v Device) error     { return r.note("settle " + v.Name) }

func (r *recorder) SetDevice(v Device, names []string) (int, error) {
	return len(names), r.note(fmt.Sprintf("link %s %v", v.Name, names))
}

// TestApplyDevicesFirst: settings come before a device is up, and one that cannot be had costs only what is
// on it.
func TestApplyDevicesFirst(t *testing.T) {
	c := Changes{
		Devices: []DeviceChange{{Want: Device{Name: "a"}, Create: true},
			{Want: Device{Name: "b"}, Recreate: "port"}, {Want: Device{Name: "c"}, Set: []string{"mtu", "up"}}},
		AddAddrs:  []Addr{{"a", pfx("10.5.1.0/32")}, {"b", pfx("10.5.2.0/32")}},
		AddRoutes: []Route{{Dst: pfx("10.5.3.0/24"), Link: "a"}, {Dst: pfx("10.5.4.0/24"), Link: "b"}},
		Strangers: []Stranger{{"d", "a bridge"}},
	}
	a := []string{"+link a", "settle a", "link a [alias up]"}
	b := []string{"-link b", "+link b", "settle b", "link b [alias up]"}
	last := []string{"settle c", "link c [mtu up]"}
	for _, x := range []struct {
		fail    string
		calls   [][]string
		missing []string
		done    int
		faults  int
	}{
		{"", [][]string{a, b, last, {"+addr 10.5.1.0/32", "+addr 10.5.2.0/32", "+route 10.5.3.0/24",
			"+route 10.5.4.0/24"}}, nil, 8, 1},
		{"+link a", [][]string{a[:1], b, last, {"+addr 10.5.2.0/32", "+route 10.5.4.0/24"}}, []string{"a"}, 5, 2},
		{"-link b", [][]string{a, b[:1], last, {"+addr 10.5.1.0/32", "+addr 10.5.2.0/32", "+route 10.5.3.0/24",
			"+route 10.5.4.0/24"}}, nil, 7, 2},
		{"settle b", [][]string{a, b, last, {"+addr 10.5.1.0/32", "+addr 10.5.2.0/32", "+route 10.5.3.0/24",
			"+route 10.5.4.0/24"}}, nil, 8, 1},
	} {
		k := &recorder{fail: x.fail}
		result, err := Apply(k, c)
		if want := slices.Concat(x.calls...); !slices.Equal(k.calls, want) || result.Done != x.done ||
			!slices.Equal(result.Missing, x.missing) {
			t.Errorf("%s fails: %d done, missing %q\n got %q\nwant %q", x.fail, result.Done, result.Missing,
				k.calls, want)
		}
		if err == nil || len(Joined(err)) != x.faults || (len(result.Settings) > 0) != strings.HasPrefix(x.fail,
			"settle") {
			t.Errorf("%s fails: %v, settings %v", x.fail, err, result.Settings)
		}
	}
}

func TestChecksumFault(t *testing.T) {
	for release, want := range map[string]bool{
		"4.15.0-213-generic": true, "5.4.0-150-generic": true, "5.6.19": true, "5.7.0": false,
		"5.10.0-28-amd64": false, "6.18.44-fc": false, "": false, "x": false,
	} {
		if got := ChecksumFault(release); got != want {
			t.Errorf("%s: %v", release, got)
		}
	}
}
