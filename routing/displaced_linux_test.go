package routing

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

func TestUDPSkipsPeersBehindTheOverlay(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	ip(t, "route add default nexthop via 192.0.2.253 dev eth0 nexthop via 192.0.2.254 dev eth0")
	ip(t, "-6 route add default via 2001:db8::fe")
	u := newTestUDP(t, k, true)
	set := testSet("10.5.1.0/24", true)
	far := lease.Record{Subnets: lease.Subnets{V4: pfx("10.5.3.0/24")},
		Attrs: lease.Attrs{PublicIP: addr("10.5.200.3")}}
	set.Peers = append(set.Peers, far)
	apply(t, u, set)
	start(t, u)
	skipped := func(want string) func() error {
		return func() error {
			if got := fmt.Sprint(u.Status().Skipped); !strings.Contains(got, want) || want == "" && got != "[]" {
				return fmt.Errorf("skipped %s, want %q", got, want)
			}
			return nil
		}
	}
	await.OK(t, "the peer is skipped", skipped("192.0.2.253"))
	if s := u.Status(); s.Peers != 1 || !s.InPlace {
		t.Errorf("status %+v", s)
	}
	ip(t, "route add 10.5.200.0/24 via 192.0.2.254")
	await.OK(t, "a more specific route is noticed", skipped(""))
	ip(t, "route del 10.5.200.0/24")
	await.OK(t, "its loss too", skipped("10.5.200.3"))

	nets := set.Config.Networks()
	for _, a := range []string{"fd00:5:0:9::5", "10.5.9.9"} {
		if got, err := underlay.FindDisplaced(k, nets, []netip.Addr{addr(a), addr("192.0.2.77"), addr("10.5.1.0")}); err != nil || len(got) != 2 || got[0].Addr != addr(a) {
			t.Errorf("%s: %+v, %v", a, got, err)
		}
	}
}
