package main

import (
	"net/netip"
	"slices"
	"testing"

	"weft/cmd/internal/control"
)

func TestDeviceLines(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:8285")
	s := control.Status{
		Underlay: control.Underlay{Devices: []control.Device{{Name: "eth0.5", Features: []string{"tx-udp-segmentation", "rx-gro"}}, {Name: "eth0"}}},
		Counters: control.Counters{Outlets: []control.Outlet{
			{Local: at, Outlet: "runs", Because: "eth0 cuts UDP and no tunnels"},
			{Local: at, Outlet: "whole", Because: "eth0 cuts tunnels", Measured: true},
			{Local: at, Outlet: "runs", Because: "eth0 cuts tunnels", Measured: true, Trials: 4, Changes: 1, Whole: 1.5, Runs: 0.3},
			{Local: at, Outlet: "cut", Because: "they cannot leave whole, and udp-gso is not in use"},
		}},
	}
	want := []string{
		"eth0.5: tx-udp-segmentation rx-gro",
		"eth0: -",
		"superpackets leave 192.0.2.1:8285 in runs: eth0 cuts UDP and no tunnels",
		"superpackets leave 192.0.2.1:8285 whole: eth0 cuts tunnels; not measured yet",
		"superpackets leave 192.0.2.1:8285 in runs: eth0 cuts tunnels; measured 4 times, last 1.500 ns a byte whole and 0.300 in runs; changed once",
		"superpackets leave 192.0.2.1:8285 cut, each datagram by a send of its own: they cannot leave whole, and udp-gso is not in use",
	}
	if got := deviceLines(s); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := deviceLines(control.Status{Underlay: control.Underlay{DevicesUnknown: "no netlink"}}); len(got) != 1 {
		t.Errorf("not known: %q", got)
	}
}
