package hostrules

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The links of the underlay's side are the underlay and those of the host's routes to peers and default
// routes; of the links that a pod could be on no other is one.
func TestOuterLinks(t *testing.T) {
	inNamespace(t)
	for _, name := range []string{"under", "uplink", "lan", "cni0", "docker0", "virbr0", "wide"} {
		sh(t, "ip link add "+name+" type veth peer name "+name+"-far")
		sh(t, "ip link set "+name+" up")
		sh(t, "ip link set "+name+"-far up")
	}
	for _, r := range []string{"route add default dev uplink", "route add 203.0.113.0/24 dev lan",
		"route add 172.17.0.0/16 dev docker0",
		"route add 10.42.7.0/24 dev cni0", "-6 route add fd42:0:0:7::/64 dev cni0",
		"-6 route add 2001:db8:9::/64 dev virbr0", "route add 10.0.0.0/8 dev wide",
		"route add 198.51.100.0/24 dev docker0 proto 119"} {
		sh(t, "ip "+r)
	}
	set := testSet("198.51.100.1", "203.0.113.7", "2001:db8:9::9")
	g := Guard{Port: 8472, Underlay: "under"}
	var routes outerRoutes
	expect := func(want string) {
		t.Helper()
		all, err := listLinks()
		if err != nil {
			t.Fatal(err)
		}
		routes.took = 0 // or else one look could be too soon after the other
		got, err := routes.links(all, g, set, 119)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q, %v, want %s", got, err, want)
		}
	}
	expect("lan lo under uplink virbr0")
	sh(t, "ip route add 192.0.2.0/24 dev wide")
	set = testSet("192.0.2.1")
	expect("lo under uplink wide")
	sh(t, "ip route del default")
	expect("lo under wide")
	g.Underlay = "cni0" // nothing forbids it
	expect("cni0 lo wide")
	g.Underlay = "away0"
	expect("away0 lo wide")
	for _, g = range []Guard{{Port: 8472}, {Underlay: "under"}} {
		expect("")
	}
	if anyWithin(netip.MustParsePrefix("192.0.2.0/24"), nil) {
		t.Error("one of none")
	}
}

// The routes are not listed again at once where that takes long, as with a full table of the Internet, unless
// the peers or the underlay are others.
func TestRoutesAreNotListedAllTheTime(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add lan type veth peer name lan-far")
	sh(t, "ip link set lan up")
	g, set := Guard{Port: 8472, Underlay: "under"}, testSet("203.0.113.7")
	var routes outerRoutes
	expect := func(what, want string) {
		t.Helper()
		all, err := listLinks()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := routes.links(all, g, set, 119); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v, want %s", what, got, err, want)
		}
	}
	expect("at first", "lo under")
	sh(t, "ip route add 203.0.113.0/24 dev lan")
	routes.took = time.Second
	expect("too soon", "lo under")
	routes.asked = routes.asked.Add(-routesShare * time.Second)
	expect("later", "lan lo under")
	sh(t, "ip route del 203.0.113.0/24")
	routes.took = time.Hour
	expect("too soon", "lan lo under")
	set = testSet("203.0.113.7")
	expect("with another set", "lo under")
	sh(t, "ip route add 203.0.113.0/24 dev lan")
	routes.took, routes.asked = time.Hour, routes.asked.Add(-routesFresh)
	expect("after half a minute", "lan lo under")
}
