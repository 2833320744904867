package plane

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

// TestNextHopsFollow is everything that a next hop depends on, changed while the backend runs.
func TestNextHopsFollow(t *testing.T) {
	nextHopsFollow(t, "", "192.0.2.2", "192.0.2.9", "/32")
}

func TestNextHopsFollowIPv6(t *testing.T) {
	nextHopsFollow(t, "-6 ", "2001:db8::2", "2001:db8::9", "/128")
}

// nextHopsFollow has one peer, at the address peer, first on the link and then behind gate. near goes
// before the arguments of ip.
func nextHopsFollow(t *testing.T, near, peer, gate, host string) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	netns.EtherLink(t, "eth1", 1500, "192.0.3.1/24", "2001:db8:1::1/64")
	d := newDriven(t, k, "192.0.2.1", "2001:db8::1",
		tunnel.PeerSpec{Name: "two", Addr: addr(peer), Subnets: []netip.Prefix{pfx("10.5.2.0/24")}})
	d.follow(t)
	local := macUs
	netns.IP(t, "link set eth0 address %v", local)
	expect := func(what string, mac encap.MAC) {
		t.Helper()
		want := port.NextHop{Local: local, Remote: mac}
		d.awaitHops(t, what, func(got map[netip.Addr]port.NextHop) error {
			if h, ok := got[addr(peer)]; mac == (encap.MAC{}) && len(got) > 0 || mac != (encap.MAC{}) &&
				(!ok || h != want || len(got) != 1) {
				return fmt.Errorf("next hops %v, want %v", got, want)
			}
			return nil
		})
	}
	none := encap.MAC{}
	run := func(format string, a ...any) { netns.IP(t, near+format, a...) }

	expect("neighbour unknown", none)
	run("neigh replace %s lladdr %v dev eth0 nud stale", peer, macPeer)
	expect("neighbour known", macPeer)
	run("neigh replace %s lladdr %v dev eth0 nud reachable", peer, macGate)
	expect("its MAC changed", macGate)
	run("neigh replace %s dev eth0 nud failed", peer)
	expect("it failed", none)
	run("neigh replace %s lladdr %v dev eth0 nud permanent", peer, macPeer)
	expect("it is back", macPeer)

	run("neigh replace %s lladdr %v dev eth0 nud permanent", gate, macGate)
	run("route add %s%s via %s", peer, host, gate)
	expect("by a gateway", macGate)
	run("route replace %s%s via %s mtu 1400", peer, host, gate)
	expect("a smaller route MTU", none)
	run("route replace blackhole %s%s", peer, host)
	expect("blackhole", none)
	run("route del %s%s", peer, host)
	expect("the route gone", macPeer)

	run("route add unreachable default table 100")
	run("rule add to %s table 100", peer)
	expect("a rule against it", none)
	run("rule del to %s table 100", peer)
	expect("no rule any more", macPeer)
	run("rule add to %s ipproto udp dport 8285 table 100", peer)
	expect("a rule against the tunnel's port", none)
	run("rule del to %s ipproto udp dport 8285 table 100", peer)
	expect("no such rule any more", macPeer)
	run("route del unreachable default table 100")

	run("route add %s%s dev eth1", peer, host)
	expect("by another link", none)
	netns.IP(t, "link set eth1 down") // the kernel drops the route, in IPv4 without a word
	expect("the other link down", macPeer)
	netns.IP(t, "link set eth1 up")

	local = encap.MAC{2, 0, 0, 0, 0, 0x77}
	netns.IP(t, "link set eth0 address %v", local)
	run("neigh replace %s lladdr %v dev eth0 nud permanent", peer, macPeer) // the kernel forgot them all
	expect("another MAC of ours", macPeer)
}

// TestNextHopsScale has 10,000 peers behind two gateways: a change of a neighbour asks for no route.
func TestNextHopsScale(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	netns.IP(t, "route add default via 192.0.2.9")
	netns.IP(t, "neigh add 192.0.2.9 lladdr %v dev eth0", macGate)
	const peers = 10_000
	specs := make([]tunnel.PeerSpec, peers)
	for i := range specs {
		specs[i] = tunnel.PeerSpec{
			Name: fmt.Sprint(i), Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>8), byte(i), 0}), 24)},
		}
	}
	d := newDriven(t, k, "192.0.2.1", "", specs...)
	t.Logf("asking for %d routes took %v", peers, d.AskingTook())
	all := func(want encap.MAC) error {
		for _, h := range d.hops() {
			if h.Remote != want {
				return fmt.Errorf("a next hop %v, want %v", h, want)
			}
		}
		return nil
	}
	many := func(want int) error {
		if n := len(d.hops()); n != want {
			return fmt.Errorf("%d next hops, want %d", n, want)
		}
		return nil
	}
	// Marking one in the cache shows whether it is asked for again.
	mark := func() {
		d.mu.Lock()
		d.next.routes.via[addr("198.18.0.7")] = netip.Addr{}
		d.mu.Unlock()
	}
	mark()
	began := time.Now()
	if err := d.UpdateNextHops("eth0", kernel.ChangedNeighbours); err != nil {
		t.Fatal(err)
	}
	t.Logf("following a neighbour took %v", time.Since(began))
	if err := errors.Join(all(macGate), many(peers-1)); err != nil {
		t.Error(err)
	}
	d.follow(t)
	await.OK(t, "what was missed at the start", func() error { return many(peers) })
	var err error
	for i := range byte(20) { // something else that was under way may have asked for them
		mark()
		mac := encap.MAC{2, 0, 0, 0, 1, i}
		netns.IP(t, "neigh replace 192.0.2.9 lladdr %v dev eth0", mac)
		await.OK(t, "another MAC of the gateway", func() error { return all(mac) })
		if err = many(peers - 1); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("each MAC has all routes asked for: %v", err)
	}
	netns.IP(t, "route add 198.18.0.0/24 via 192.0.2.10")
	netns.IP(t, "route del 198.18.0.0/24")
	await.OK(t, "asked for again", func() error { return many(peers) })
}
