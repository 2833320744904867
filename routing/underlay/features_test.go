package underlay

import (
	"slices"
	"testing"

	"weft/routing/internal/kernel"
	"weft/tunnel"
)

func TestFeaturesOf(t *testing.T) {
	s := featuresOf(map[string]bool{"tx-udp_tnl-segmentation": true, "rx-gro": true, "rx-vlan-filter": true, "tx-udp-segmentation": false})
	if s != FeatureSet(0).With(TunnelSegmentation, GRO) {
		t.Errorf("%v", s.Names())
	}
	if got, want := s.Names(), []string{"tx-udp_tnl-segmentation", "rx-gro"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOutletsOfDevices(t *testing.T) {
	none := FeatureSet(0).With(ChecksumAny)
	udp := none.With(UDPSegmentation)
	tunnels := udp.With(TunnelSegmentation, TunnelCsumSegmentation)
	const whole, runs = tunnel.OutletWhole, tunnel.OutletRuns
	free := tunnel.Outlets{First: whole, Try: true, Trust: true}
	type options struct{ six, noWhole, noRuns bool }
	for _, c := range []struct {
		name string
		list []FeatureSet
		o    options
		want tunnel.Outlets
	}{
		{"cuts tunnels", []FeatureSet{tunnels}, options{}, free},
		{"over IPv6", []FeatureSet{tunnels}, options{six: true}, free},
		{"no checksum in IPv6's tunnels", []FeatureSet{udp.With(TunnelSegmentation)}, options{six: true}, tunnel.Outlets{First: runs}},
		{"cuts tunnels and no UDP", []FeatureSet{none.With(TunnelSegmentation)}, options{}, free},
		{"cuts UDP", []FeatureSet{udp}, options{}, tunnel.Outlets{First: runs}},
		{"cuts neither", []FeatureSet{none}, options{}, tunnel.Outlets{First: runs, Try: true, Trust: true}},
		{"checksums of IPv4 only", []FeatureSet{FeatureSet(0).With(UDPSegmentation, Checksum4)}, options{}, tunnel.Outlets{First: runs}},
		{"and IPv6 is cut in software", []FeatureSet{FeatureSet(0).With(UDPSegmentation, Checksum4)}, options{six: true}, tunnel.Outlets{First: runs, Try: true, Trust: true}},
		{"no checksums", []FeatureSet{tunnels &^ none}, options{}, tunnel.Outlets{First: runs, Try: true, Trust: true}},
		{"a VLAN over less", []FeatureSet{tunnels, udp}, options{}, tunnel.Outlets{First: runs}},
		{"less over a device that cuts", []FeatureSet{udp, tunnels}, options{}, tunnel.Outlets{First: runs}},
		{"a bond of unequals", []FeatureSet{tunnels, tunnels, none}, options{}, tunnel.Outlets{First: runs, Try: true, Trust: true}},
		{"each lacks another", []FeatureSet{none.With(TunnelSegmentation), udp}, options{}, tunnel.Outlets{First: runs, Try: true, Trust: true}},
		{"not known", nil, options{}, free},
		{"no TAP", []FeatureSet{tunnels}, options{noWhole: true}, tunnel.Outlets{First: runs}},
		{"neither TAP nor runs", []FeatureSet{tunnels}, options{noWhole: true, noRuns: true}, tunnel.Outlets{First: runs}},
		{"no runs", []FeatureSet{udp}, options{noRuns: true}, tunnel.Outlets{First: whole}},
	} {
		var d Devices
		for i, s := range c.list {
			d.List = append(d.List, Device{i, "eth" + string(rune('0'+i)), s})
		}
		got := d.Outlets(c.o.six, !c.o.noWhole, !c.o.noRuns)
		if got.Why == "" {
			t.Errorf("%s: no reason", c.name)
		}
		if got.Why = ""; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestWhyNamesDevices(t *testing.T) {
	d := Devices{List: []Device{
		{1, "eth0.5", FeatureSet(0).With(ChecksumAny, UDPSegmentation, TunnelSegmentation)},
		{2, "eth0", FeatureSet(0).With(ChecksumAny, UDPSegmentation)},
	}}
	if got, want := d.Outlets(false, true, true).Why, "eth0 cuts UDP and no tunnels"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBelow(t *testing.T) {
	link := func(index int, kind string, parent, master int) kernel.LinkKind {
		return kernel.LinkKind{Index: index, Kind: kind, Parent: parent, Master: master, Up: true}
	}
	down := link(8, "device", 0, 3)
	down.Up = false
	links := []kernel.LinkKind{
		link(1, "device", 0, 3), link(2, "device", 0, 3), link(3, "bond", 0, 0), link(4, "vlan", 3, 5), link(5, "bridge", 0, 0),
		link(6, "veth", 0, 5), link(7, "tuntap", 0, 5), down, link(9, "bridge", 0, 0), link(10, "veth", 0, 9), link(11, "macvlan", 10, 0),
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
