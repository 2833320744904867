package kernel_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
	"weft/routing/internal/kernel/kerneltest"
	"weft/test/netns"
)

// TestWaysOfBothFamilies: a socket on which the kernel checks requests strictly would refuse those for IPv6.
func TestWaysOfBothFamilies(t *testing.T) {
	k := kerneltest.Enter(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	netns.IP(t, "route add 198.51.100.0/24 via 192.0.2.254")
	netns.IP(t, "-6 route add 2001:db8:9::/48 via 2001:db8::fe")
	near, far := map[string]string{"192.0.2.9": "192.0.2.1", "2001:db8::9": "2001:db8::1"},
		[]string{"198.51.100.2", "2001:db8:9::2"}
	d, err := k.Device("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Reach(netip.MustParseAddr("192.0.2.1")); got.Err == nil {
		t.Errorf("the host's own: %+v", got)
	}
	var all []netip.Addr
	for a, from := range near {
		if got := k.Reach(netip.MustParseAddr(a)); got.Err != nil || got.Index != d.Index ||
			got.Src.String() != from {
			t.Errorf("%s: %+v", a, got)
		}
		all = append(all, netip.MustParseAddr(a))
	}
	for _, a := range append(far, "203.0.113.1") {
		all = append(all, netip.MustParseAddr(a))
	}
	hops, err := k.NextHops(all)
	if err != nil || len(hops) != len(all) {
		t.Fatal(hops, err)
	}
	for a := range near {
		if h := hops[netip.MustParseAddr(a)]; h != (kernel.Hop{Link: "eth0"}) {
			t.Errorf("%s: %+v", a, h)
		}
	}
	for i, via := range []string{"192.0.2.254", "2001:db8::fe"} {
		if h := hops[netip.MustParseAddr(far[i])]; h !=
			(kernel.Hop{Link: "eth0", Gateway: netip.MustParseAddr(via)}) {
			t.Errorf("%s: %+v", far[i], h)
		}
	}
	if k.Reach(all[4]).Err != unix.ENETUNREACH || hops[all[4]].Indirect(all[4], "eth0") == "" {
		t.Errorf("without a route: %+v", hops[all[4]])
	}
}
