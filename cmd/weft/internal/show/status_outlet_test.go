package show

import (
	"net/netip"
	"strings"
	"testing"

	"weft/cmd/internal/control"
)

func TestDeviceLines(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:8285")
	s := control.Status{
		Underlay: control.Underlay{Devices: []control.Device{
			{Name: "eth0.5", Features: []string{"tx-udp-segmentation", "rx-gro"}}, {Name: "eth0"}}},
		Counters: control.Counters{Outlets: []control.Outlet{
			{Local: at, Outlet: "runs", Because: "eth0 cuts UDP and no tunnels"},
			{Local: at, Outlet: "whole", Because: "eth0 cuts tunnels"},
			{Local: at, Outlet: "cut", Because: "they cannot leave whole, and udp-gso is not in use"},
		}},
	}
	got := deviceLines(s)
	if len(got) != 5 || got[0] != "eth0.5: tx-udp-segmentation rx-gro" || got[1] != "eth0: -" {
		t.Errorf("%q", got)
	}
	for i, o := range s.Counters.Outlets {
		if line := got[2+i]; !strings.Contains(line, at.String()) || !strings.Contains(line, o.Because) {
			t.Errorf("%+v: %q", o, line)
		}
	}
	if got := deviceLines(control.Status{Underlay: control.Underlay{DevicesUnknown: "no netlink"}}); len(got) != 1 {
		t.Errorf("not known: %q", got)
	}
}
