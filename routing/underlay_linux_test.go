package routing

import (
	"strings"
	"testing"
)

func TestChooseUnderlayInNamespace(t *testing.T) {
	k := inNamespace(t)
	etherLink(t, "eth0", 1500, "192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64")
	etherLink(t, "eth1", 9000, "198.51.100.3/24")
	etherLink(t, "eth2", 1400, "203.0.113.3/24")
	ip(t, "link set eth2 down")
	both := UnderlayOptions{IPv4: true, IPv6: true}

	if _, err := ChooseUnderlay(k, both); err == nil || !strings.Contains(err.Error(), "no default route") {
		t.Errorf("without a default route: %v", err)
	}
	ip(t, "route add default via 192.0.2.1 metric 200")
	ip(t, "route add default via 198.51.100.1 metric 100")
	ip(t, "route add 8.8.8.0/24 via 192.0.2.1 src 192.0.2.11")

	v4 := UnderlayOptions{IPv4: true}
	for _, c := range []struct {
		name string
		o    UnderlayOptions
		want Underlay
	}{
		{"lowest metric", v4, Underlay{Link: "eth1", MTU: 9000, Addr4: addr("198.51.100.3"), Ext4: addr("198.51.100.3")}},
		{"both families", both, Underlay{Link: "eth0", MTU: 1500, Addr4: addr("192.0.2.10"), Ext4: addr("192.0.2.10"),
			Addr6: addr("2001:db8::10"), Ext6: addr("2001:db8::10")}},
		{"by the kernel's route", UnderlayOptions{IPv4: true, CanReach: addr("8.8.8.8")},
			Underlay{Link: "eth0", MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}},
		{"behind NAT", UnderlayOptions{IPv4: true, PublicIP: addr("203.0.113.200")},
			Underlay{Link: "eth1", MTU: 9000, Addr4: addr("198.51.100.3"), Ext4: addr("203.0.113.200")}},
		{"public address that is local", UnderlayOptions{IPv4: true, PublicIP: addr("192.0.2.11")},
			Underlay{Link: "eth0", MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}},
		{"by name", UnderlayOptions{IPv4: true, Interfaces: []string{"eth2", "eth0"}},
			Underlay{Link: "eth0", MTU: 1500, Addr4: addr("192.0.2.10"), Ext4: addr("192.0.2.10")}},
	} {
		got, err := ChooseUnderlay(k, c.o)
		got.Index = 0
		if err != nil || got != c.want {
			t.Errorf("%s:\ngot  %+v, %v\nwant %+v", c.name, got, err, c.want)
		}
	}
	ip(t, "route add default nexthop via 192.0.2.1 nexthop via 198.51.100.1")
	if got, err := ChooseUnderlay(k, v4); err != nil || got.Link != "eth0" {
		t.Errorf("default route with two next hops: %+v, %v", got, err)
	}
	_, err := ChooseUnderlay(k, UnderlayOptions{IPv4: true, CanReach: addr("192.0.2.10")})
	if err == nil || !strings.Contains(err.Error(), "this host's own address") {
		t.Errorf("can reach itself: %v", err)
	}
}
