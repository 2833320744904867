package underlay

import (
	"slices"
	"testing"

	"weft/routing/internal/kernel"
	"weft/tunnel/port"
)

func TestOutletOfDevices(t *testing.T) {
	none := Features{ChecksumAny}
	udp := Features{ChecksumAny, UDPSegmentation}
	tunnels := Features{ChecksumAny, UDPSegmentation, TunnelSegmentation, TunnelCsumSegmentation}
	const whole, runs = port.OutletWhole, port.OutletRuns
	type options struct{ six, noWhole, noRuns bool }
	for _, c := range []struct {
		name string
		list []Features
		o    options
		want port.Outlet
	}{
		{"cuts tunnels", []Features{tunnels}, options{}, whole},
		{"over IPv6", []Features{tunnels}, options{six: true}, whole},
		{"no checksum in IPv6's tunnels", []Features{tunnels[:3]}, options{six: true}, runs},
		{"cuts tunnels and no UDP", []Features{{ChecksumAny, TunnelSegmentation}}, options{}, whole},
		{"cuts UDP", []Features{udp}, options{}, runs},
		{"cuts neither", []Features{none}, options{}, runs},
		{"checksums of IPv4 only", []Features{{UDPSegmentation, Checksum4}}, options{}, runs},
		{"and IPv6 is cut in software", []Features{{UDPSegmentation, Checksum4}},
			options{six: true}, runs},
		{"no checksums", []Features{tunnels[1:]}, options{}, runs},
		{"a VLAN over less", []Features{tunnels, udp}, options{}, runs},
		{"less over a device that cuts", []Features{udp, tunnels}, options{}, runs},
		{"a bond of unequals", []Features{tunnels, tunnels, none}, options{}, runs},
		{"each lacks another", []Features{{ChecksumAny, TunnelSegmentation}, udp}, options{}, runs},
		{"not known", nil, options{}, runs},
		{"no TAP", []Features{tunnels}, options{noWhole: true}, runs},
		{"neither TAP nor runs", []Features{tunnels}, options{noWhole: true, noRuns: true}, runs},
		{"no runs", []Features{udp}, options{noRuns: true}, whole},
	} {
		var d Devices
		for i, s := range c.list {
			d.List = append(d.List, Device{i, "eth" + string(rune('0'+i)), s})
		}
		got := d.Outlet(c.o.six, !c.o.noWhole, !c.o.noRuns)
		if got.Why == "" {
			t.Errorf("%s: no reason", c.name)
		}
		if got.Outlet != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWhyNamesDevices(t *testing.T) {
	d := Devices{List: []Device{
		{1, "eth0.5", Features{ChecksumAny, UDPSegmentation, TunnelSegmentation}},
		{2, "eth0", Features{ChecksumAny, UDPSegmentation}},
	}}
	if got, want := d.Outlet(false, true, true).Why, "eth0 cuts UDP and no tunnels"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBelow(t *testing.T) {
	link := func(index int, kind string, parent, master int) kernel.Device {
		return kernel.Device{Up: true, Index: index, Kind: kind, Parent: parent, Master: master}
	}
	down := link(8, "device", 0, 3)
	down.Up = false
	links := []kernel.Device{
		link(1, "device", 0, 3), link(2, "device", 0, 3), link(3, "bond", 0, 0), link(4, "vlan", 3, 5),
		link(5, "bridge", 0, 0),
		link(6, "veth", 0, 5), link(7, "tap", 0, 5), link(16, "tuntap", 0, 5), down,
		link(9, "bridge", 0, 0), link(10, "veth", 0, 9),
		link(11, "macvlan", 10, 0),
		link(12, "macvlan", 99, 0), link(13, "vlan", 14, 0), link(14, "vlan", 13, 0), link(15, "bridge", 0, 0),
	}
	for index, want := range map[int][]int{
		1: {1}, 3: {3, 1, 2}, 4: {4, 3, 1, 2},
		5:  {5, 4, 3, 1, 2}, // not the guests
		9:  {9, 10},         // there is nothing but guests
		11: {11, 10},
		12: {12},     // the parent is not to be seen
		13: {13, 14}, // which cannot be
		15: {15},
		99: nil,
	} {
		var got []int
		for _, l := range below(links, index) {
			got = append(got, l.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("below %d: %d, want %d", index, got, want)
		}
	}
}
