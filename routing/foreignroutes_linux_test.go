package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
)

func TestShadowed(t *testing.T) {
	p := netip.MustParsePrefix
	set := lease.Set{Own: lease.Record{Subnets: lease.Subnets{V4: p("10.5.1.0/24")}}, Peers: []lease.Record{
		{Subnets: lease.Subnets{V4: p("10.5.2.0/24")}}, {Subnets: lease.Subnets{V4: p("10.5.3.0/24")}}}}
	whole := []kernel.Route{{Dst: p("10.5.0.0/16"), Link: "flannel0", Protocol: RouteProtocol}}
	each := []kernel.Route{{Dst: p("10.5.2.0/24"), Link: "flannel.1", Protocol: RouteProtocol},
		{Dst: p("10.5.3.0/24"), Link: "flannel.1", Protocol: RouteProtocol, Metric: 5}}
	for _, tt := range []struct {
		name  string
		there kernel.Route
		ours  []kernel.Route
		want  string // "" for nothing
	}{
		{"a part of a peer's", kernel.Route{Dst: p("10.5.2.128/25"), Link: "eth0"}, whole, "10.5.2.128/25"},
		{"one pod's", kernel.Route{Dst: p("10.5.3.7/32"), Link: "wg0", Protocol: 3}, each, "(10.5.3.0/24) out"},
		{"several peers'", kernel.Route{Dst: p("10.5.0.0/17"), Link: "eth0",
			Gateway: netip.MustParseAddr("192.0.2.9")}, whole, "10.5.2.0/24"},
		{"shorter than ours", kernel.Route{Dst: p("10.5.0.0/17"), Link: "eth0"}, each, ""},
		{"as long as ours, and better", kernel.Route{Dst: p("10.5.3.0/24"), Link: "eth0"}, each,
			"(10.5.3.0/24) out"},
		{"as long as ours, and worse", kernel.Route{Dst: p("10.5.3.0/24"), Link: "eth0", Metric: 9}, each, ""},
		{"nobody's", kernel.Route{Dst: p("10.5.9.0/24"), Link: "eth0"}, whole, ""},
		{"outside", kernel.Route{Dst: p("10.6.2.0/24"), Link: "eth0"}, whole, ""},
		{"our pods'", kernel.Route{Dst: p("10.5.1.0/24"), Link: "cni0"}, whole, ""},
		{"ours", kernel.Route{Dst: p("10.5.2.0/25"), Link: "eth0", Protocol: RouteProtocol}, whole, ""},
		{"by our device", kernel.Route{Dst: p("10.5.2.0/25"), Link: "flannel0"}, whole, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := shadowed(append(slices.Clone(tt.ours), tt.there), tt.ours,
				map[string]bool{"flannel0": true, "flannel.1": true}, []netip.Prefix{p("10.5.0.0/16")}, set)
			if tt.want == "" != (len(got) == 0) || len(got) > 0 && !strings.Contains(got[0], tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A route that takes a peer's packets out of the overlay is a note as soon as the kernel tells of it, and
// until it is gone.
func TestAShadowIsSeen(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	start(t, u)
	noted := func(want bool) func() error {
		return func() error {
			notes := u.Status().Notes
			if slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "10.5.2.64/26") }) != want {
				return errors.New(fmt.Sprint(notes))
			}
			return nil
		}
	}
	await.OK(t, "nothing is in the way", noted(false))
	ip(t, "route add 10.5.2.64/26 dev eth0 proto static")
	await.OK(t, "noted", noted(true))
	ip(t, "route del 10.5.2.64/26 dev eth0")
	await.OK(t, "gone", noted(false))
}
