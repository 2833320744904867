package doctor

import "testing"

// TestKernelsOwnSockets: sockets without a process are the kernel's where it has a device of weft's, or a
// vxlan device with the port.
func TestKernelsOwnSockets(t *testing.T) {
	vxlan := func(name string, port int) Link { return Link{Name: name, Kind: "vxlan", UDPPort: port} }
	wireguard := func(name string) Link { return Link{Name: name, Kind: "wireguard"} }
	for _, x := range []struct {
		what   string
		link   Link
		left   int
		device string
	}{
		{"weft's WireGuard", wireguard("flannel-wg"), 1, ""},
		{"another WireGuard", wireguard("wg0"), 3, ""},
		{"weft's vxlan", vxlan("flannel.1", 51820), 1, ""},
		{"another vxlan", vxlan("vxlan.calico", 51820), 1, "vxlan.calico"},
		{"another vxlan with another port", vxlan("vxlan.calico", 4789), 3, ""},
	} {
		p := Port{Holders: []Holder{{}, {PID: 99, Name: "flanneld"}, {}}}
		if p.leaveOut([]Link{x.link}, 51820); len(p.Holders) != x.left || p.Device != x.device {
			t.Errorf("%s: %+v", x.what, p)
		}
	}
}
