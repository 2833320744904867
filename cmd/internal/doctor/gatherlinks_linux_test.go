package doctor

import (
	"testing"

	"github.com/vishvananda/netlink"

	"weft/cmd/internal/control"
)

// TestKernelsOwnSockets: sockets without a process are the kernel's where it has a device of weft's, or a vxlan device with the port.
func TestKernelsOwnSockets(t *testing.T) {
	vxlan := func(name string, port int) netlink.Link {
		return &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name}, Port: port}
	}
	wireguard := func(name string) netlink.Link { return &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name}} }
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

// TestSocketsOfWhatEncrypts: they are weftd's too, which says what has them.
func TestSocketsOfWhatEncrypts(t *testing.T) {
	d := Daemon{Asked: true, PID: 7, Status: control.Status{PID: 7, Backend: control.Backend{Processes: []control.Process{{Device: "flannel-wg", PID: 8}}}}}
	for pid, want := range map[int]bool{0: false, 7: true, 8: true, 9: false} {
		if got := d.has(pid, "exe"); got != want {
			t.Errorf("pid %d: %v", pid, got)
		}
	}
}
