package plane

import (
	"net/netip"
	"testing"

	"weft/routing/internal/kernel"
)

func TestPickDevice(t *testing.T) {
	nets := []netip.Prefix{pfx("10.5.0.0/16"), pfx("fd00:5::/48")}
	tun := func(i int, name, alias string) kernel.Device {
		return kernel.Device{Name: name, Alias: alias, Index: i, Kind: "tun"}
	}
	for _, c := range []struct {
		name  string
		ds    []kernel.Device
		addrs map[int][]netip.Addr
		inUse map[string]bool
		want  string
	}{
		{name: "first one", want: "flannel0"},
		{name: "ours from before", ds: []kernel.Device{tun(1, "flannel0", ""), tun(2, "flannel1", kernel.Alias)},
			addrs: map[int][]netip.Addr{1: {addr("10.9.0.0")}, 2: {addr("fe80::1"), addr("fd00:5:0:1::")}},
			want:  "flannel1"},
		{name: "flannel's, left behind", ds: []kernel.Device{tun(1, "flannel0", "")},
			addrs: map[int][]netip.Addr{1: {addr("10.5.1.0")}}, want: "flannel0"},
		{name: "ours, without an address yet", ds: []kernel.Device{tun(1, "flannel0", kernel.Alias)},
			addrs: map[int][]netip.Addr{1: {addr("fe80::1")}}, want: "flannel0"},
		{name: "ours without an address, but another process has it",
			ds: []kernel.Device{tun(1, "flannel0", kernel.Alias)}, inUse: map[string]bool{"flannel0": true},
			want: "flannel1"},
		{name: "another instance's", ds: []kernel.Device{tun(1, "flannel0", kernel.Alias)},
			addrs: map[int][]netip.Addr{1: {addr("10.9.1.0")}}, want: "flannel1"},
		{name: "somebody's, without an address", ds: []kernel.Device{tun(1, "flannel0", "")}, want: "flannel1"},
		{name: "with somebody's alias", ds: []kernel.Device{tun(1, "flannel0", "vpn")},
			addrs: map[int][]netip.Addr{1: {addr("10.5.1.0")}}, want: "flannel1"},
		{name: "no TUN", ds: []kernel.Device{{Name: "flannel0", Alias: kernel.Alias, Index: 1}},
			addrs: map[int][]netip.Addr{1: {addr("10.5.1.0")}}, want: "flannel1"},
		{name: "vxlan's names are others", ds: []kernel.Device{tun(1, "flannel.1", ""), tun(2, "flannel0a", "")},
			want: "flannel0"},
		{name: "a new one fell to another process", inUse: map[string]bool{"flannel0": true}, want: "flannel1"},
	} {
		if got := pickDevice(c.ds, c.addrs, nets, c.inUse); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
