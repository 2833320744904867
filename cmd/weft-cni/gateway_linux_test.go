package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// A node gets another subnet while it has pods. New pods are attached, old ones keep their gateway as long as
// there is one of them, and after the last one the bridge is as if there had been no other subnet.
func TestTheSubnetIsAnother(t *testing.T) {
	for _, tt := range []struct{ name, before, after, old, want string }{
		{"IPv4", env4, strings.ReplaceAll(env4, "10.244.3.1", "10.244.7.1"), "10.244.3.1/24", "[10.244.7.1/24]"},
		{"IPv6", env6, strings.ReplaceAll(env6, ":3::1", ":7::1"), "fd42:0:0:3::1/64", "[fd42:0:0:7::1/64]"},
		{"both", strings.ReplaceAll(envDual, "=false", "=true"),
			strings.NewReplacer("IPMASQ=false", "IPMASQ=true", "10.244.3.1", "10.244.7.1", ":3::1",
				":7::1").Replace(envDual), "10.244.3.1/24", "[10.244.7.1/24 fd42:0:0:7::1/64]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.subnet(tt.before)
			conf := n.conf("1.0.0", "flannel", `"delegate":{"isDefaultGateway":true}`)
			bridge := pod{n.Namespace, ""}
			has := func(want string) {
				t.Helper()
				if got := fmt.Sprint(bridge.addresses(t, "cni0")); got != want {
					t.Errorf("cni0 has %s, want %s", got, want)
				}
			}
			old := n.pod("old")
			n.must("ADD", old, "eth0", conf)
			gateway := netip.MustParsePrefix(tt.old).Addr()
			for _, a := range old.addresses(t, "eth0") {
				// once an IPv6 address of the host's can be used, it has a source
				reach(t, old.Namespace, bridge, a.Masked().Addr().Next(), 8001, 8001)
			}
			n.subnet(tt.after)
			pods := []pod{n.pod("new"), n.pod("newer")}
			for i, p := range pods {
				n.must("ADD", p, "eth0", conf)
				for _, a := range p.addresses(t, "eth0") {
					reach(t, n.Namespace, p, a.Addr(), 8002, 8002)
					reach(t, old.Namespace, p, a.Addr(), 8003, 8003)
					reach(t, pods[0].Namespace, p, a.Addr(), 8004, 8004)
					reach(t, p.Namespace, bridge, a.Masked().Addr().Next(), uint16(8010+i), uint16(8010+i))
				}
				reach(t, old.Namespace, bridge, gateway, 8001, 8001)
			}
			stays := fmt.Sprint(bridge.addresses(t, "cni0"))
			if !strings.Contains(stays, tt.old) {
				t.Errorf("cni0 has %s", stays)
			}
			n.must("DEL", pods[1], "eth0", conf)
			has(stays)
			n.must("DEL", old, "eth0", conf)
			has(tt.want)
			again := n.pod("again")
			n.must("ADD", again, "eth0", conf)
			has(tt.want)
			for _, a := range again.addresses(t, "eth0") {
				reach(t, pods[0].Namespace, again, a.Addr(), 8005, 8005)
				reach(t, n.Namespace, again, a.Addr(), 8006, 8006)
			}
		})
	}
}
