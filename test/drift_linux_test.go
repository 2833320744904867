package test

import (
	"fmt"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// Whatever somebody removes from the kernel is restored, and traffic returns within seconds.
func TestDriftHeals(t *testing.T) {
	l := shared(t, ipv4Only)
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	for _, c := range []struct {
		name string
		do   [][]string
	}{
		{"the device deleted", [][]string{{"ip", "link", "del", "flannel0"}}},
		{"the device down", [][]string{{"ip", "link", "set", "flannel0", "down"}}},
		{"the route deleted", [][]string{{"ip", "route", "del", "10.42.0.0/16"}}},
		{"the addresses deleted", [][]string{{"ip", "addr", "flush", "dev", "flannel0"}}},
		{"the MTU changed", [][]string{{"ip", "link", "set", "flannel0", "mtu", "1000"}}},
		{"the underlay's link down and up", [][]string{{"ip", "link", "set", "eth0", "down"}, {"sleep", "0.5"},
			{"ip", "link", "set", "eth0", "up"}}},
		{"the underlay's address taken off and put back", [][]string{{"ip", "addr", "del", "198.18.0.2/16", "dev", "eth0"}, {"sleep", "0.5"},
			{"ip", "addr", "add", "198.18.0.2/16", "dev", "eth0"}}},
		{"all at once", [][]string{{"ip", "link", "set", "eth0", "down"}, {"ip", "link", "del", "flannel0"}, {"ip", "link", "set", "eth0", "up"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, argv := range c.do {
				if _, err := b.Node.Command(t.Context(), argv[0], argv[1:]...); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("back after %s", reach(t, await.Patience, a, b, 4).Round(time.Millisecond))
			reach(t, await.Patience, b, a, 4)
			if err := b.Node.WaitReady(await.Context(t, await.Patience)); err != nil {
				t.Error(lab.Explain(err))
			}
			await.OK(t, "flannel0 as it was", func() error {
				link, err := b.Node.NS.Netlink().LinkByName("flannel0")
				if err == nil && (link.Attrs().MTU != 1472 || link.Attrs().Alias != "weft") {
					err = fmt.Errorf("mtu %d, alias %q", link.Attrs().MTU, link.Attrs().Alias)
				}
				return err
			})
		})
	}
}
