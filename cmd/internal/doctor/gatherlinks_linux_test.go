package doctor

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// TestKernelsOwnSockets: sockets without a process are the kernel's where it has a device of weft's, or a
// vxlan device with the port.
func TestKernelsOwnSockets(t *testing.T) {
	vxlan := func(name string, port int) netlink.Link {
		return &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name}, Port: port}
	}
	wireguard := func(name string) netlink.Link {
		return &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name}}
	}
	for _, x := range []struct {
		what   string
		link   netlink.Link
		left   int
		device string
	}{
		{"weft's WireGuard", wireguard("flannel-wg"), 1, ""},
		{"another WireGuard", wireguard("wg0"), 3, ""},
		{"weft's vxlan", vxlan("flannel.1", 51820), 1, ""},
		{"another vxlan", vxlan("vxlan.calico", 51820), 1, "vxlan.calico"},
		{"another vxlan with another port", vxlan("vxlan.calico", 4789), 3, ""},
	} {
		p := Port{Number: 51820, Number6: 51821, Holders: []Holder{{}, {PID: 99, Name: "flanneld"}, {}}}
		if p.leaveOut([]netlink.Link{x.link}); len(p.Holders) != x.left || p.Device != x.device {
			t.Errorf("%s: %+v", x.what, p)
		}
	}
}
