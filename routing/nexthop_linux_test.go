package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weft/encap"
	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/tunnel"
)

// hopsOf are the next hops that a backend has handed its ports.
func hopsOf(u *carrier) map[netip.Addr]tunnel.NextHop {
	u.mu.Lock()
	defer u.mu.Unlock()
	hops := map[netip.Addr]tunnel.NextHop{}
	for _, f := range u.plane.raws() {
		for a, h := range f.hops {
			hops[a] = h
		}
	}
	return hops
}

// TestNextHopsFollow is everything that a next hop depends on, changed while the backend runs.
func TestNextHopsFollow(t *testing.T) {
	set := testSet("10.5.1.0/24", false)
	set.Peers[0].Attrs = lease.Attrs{PublicIP: addr("192.0.2.2")}
	nextHopsFollow(t, set, "", "192.0.2.2", "192.0.2.9", "/32")
}

func TestNextHopsFollowIPv6(t *testing.T) {
	set := testSet("10.5.1.0/24", false)
	set.Peers[0].Attrs = lease.Attrs{PublicIPv6: addr("2001:db8::2"), Weft: &lease.Weft{Node: "two"}}
	nextHopsFollow(t, set, "-6 ", "2001:db8::2", "2001:db8::9", "/128")
}

// nextHopsFollow has the one peer of set at peer, first on the link and then behind gate. near goes
// before the arguments of ip.
func nextHopsFollow(t *testing.T, set lease.Set, near, peer, gate, host string) {
	k := inNamespace(t)
	etherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	etherLink(t, "eth1", 1500, "192.0.3.1/24", "2001:db8:1::1/64")
	u := newTestUDP(t, k, true)
	apply(t, u, set)
	start(t, u)
	local := macUs
	ip(t, "link set eth0 address %v", local)
	expect := func(what string, mac encap.MAC) {
		t.Helper()
		want := tunnel.NextHop{Local: local, Remote: mac}
		await.OK(t, what, func() error {
			got := hopsOf(u)
			if h, ok := got[addr(peer)]; mac == (encap.MAC{}) && len(got) > 0 || mac != (encap.MAC{}) && (!ok || h != want || len(got) != 1) {
				return fmt.Errorf("next hops %v, want %v", got, want)
			}
			return nil
		})
	}
	none := encap.MAC{}
	run := func(format string, a ...any) { ip(t, near+format, a...) }

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
	ip(t, "link set eth1 down") // the kernel drops the route, in IPv4 without a word
	expect("the other link down", macPeer)
	ip(t, "link set eth1 up")

	local = encap.MAC{2, 0, 0, 0, 0, 0x77}
	ip(t, "link set eth0 address %v", local)
	run("neigh replace %s lladdr %v dev eth0 nud permanent", peer, macPeer) // the kernel forgot them all
	expect("another MAC of ours", macPeer)
}

// TestNextHopsScale has 10,000 peers behind two gateways: a change of a neighbour asks for no route.
func TestNextHopsScale(t *testing.T) {
	k := inNamespace(t)
	etherLink(t, "eth0", 1500, "192.0.2.1/24")
	ip(t, "route add default via 192.0.2.9")
	ip(t, "neigh add 192.0.2.9 lladdr %v dev eth0", macGate)
	set := testSet("10.5.1.0/24", false)
	set.Config.Network, set.Peers = pfx("10.0.0.0/8"), nil
	const peers = 10_000
	for i := range peers {
		set.Peers = append(set.Peers, lease.Record{
			Subnets: lease.Subnets{V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>8), byte(i), 0}), 24)},
			Attrs:   lease.Attrs{PublicIP: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})},
		})
	}
	u := newTestUDP(t, k, false)
	u.cfg.Network = set.Config
	apply(t, u, set)
	t.Logf("asking for %d routes took %v", peers, u.plane.next.took)
	all := func(want encap.MAC) error {
		for _, h := range hopsOf(u) {
			if h.Remote != want {
				return fmt.Errorf("a next hop %v, want %v", h, want)
			}
		}
		return nil
	}
	many := func(want int) error {
		if n := len(hopsOf(u)); n != want {
			return fmt.Errorf("%d next hops, want %d", n, want)
		}
		return nil
	}
	// Marking one in the cache shows whether it is asked for again.
	mark := func() {
		u.mu.Lock()
		u.plane.next.routes.via[addr("198.18.0.7")] = netip.Addr{}
		u.mu.Unlock()
	}
	mark()
	began := time.Now()
	if err := u.plane.updateNextHops("eth0", kernel.ChangedNeighbours); err != nil {
		t.Fatal(err)
	}
	t.Logf("following a neighbour took %v", time.Since(began))
	if err := errors.Join(all(macGate), many(peers-1)); err != nil {
		t.Error(err)
	}
	start(t, u)
	await.OK(t, "what was missed at the start", func() error { return many(peers) })
	var err error
	for i := range byte(20) { // something else that was under way may have asked for them
		mark()
		mac := encap.MAC{2, 0, 0, 0, 1, i}
		ip(t, "neigh replace 192.0.2.9 lladdr %v dev eth0", mac)
		await.OK(t, "another MAC of the gateway", func() error { return all(mac) })
		if err = many(peers - 1); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("each MAC has all routes asked for: %v", err)
	}
	ip(t, "route add 198.18.0.0/24 via 192.0.2.10")
	ip(t, "route del 198.18.0.0/24")
	await.OK(t, "asked for again", func() error { return many(peers) })
}

func TestRoutesTo(t *testing.T) {
	k := inNamespace(t)
	etherLink(t, "eth0", 1500, "192.0.2.1/24")
	ip(t, "-6 addr add 2001:db8::1/64 dev eth0 nodad")
	ip(t, "neigh add 2001:db8::9 lladdr %v dev eth0", macGate)
	ip(t, "route add 198.51.100.0/24 via inet6 2001:db8::9 dev eth0")
	ip(t, "route add 203.0.113.0/24 via 192.0.2.9 mtu 1300")
	ip(t, "route add prohibit 203.0.114.0/24")
	d, err := k.Device("eth0")
	if err != nil {
		t.Fatal(err)
	}
	dsts := []netip.Addr{addr("192.0.2.2"), addr("198.51.100.1"), addr("203.0.113.1"), addr("203.0.114.1"), addr("8.8.8.8"), addr("192.0.2.1")}
	got, err := k.RoutesTo(dsts, netip.MustParseAddrPort("192.0.2.1:8285"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []kernel.Answer{
		{Kind: kernel.RouteUnicast, Link: d.Index},
		{Kind: kernel.RouteUnicast, Link: d.Index, Gateway: addr("2001:db8::9")},
		{Kind: kernel.RouteUnicast, Link: d.Index, Gateway: addr("192.0.2.9"), MTU: 1300},
	} {
		if got[i] != want {
			t.Errorf("%v: %+v, want %+v", dsts[i], got[i], want)
		}
	}
	for i := 3; i < 5; i++ {
		if got[i].Err == nil || errors.Is(got[i].Err, kernel.ErrNoAnswer) {
			t.Errorf("%v: %+v, want an error", dsts[i], got[i])
		}
	}
	if got[5].Kind == kernel.RouteUnicast {
		t.Errorf("%v: %+v, want a local route", dsts[5], got[5])
	}
	if got, err := k.RoutesTo(nil, netip.AddrPort{}); err != nil || len(got) != 0 {
		t.Errorf("nothing asked: %v, %v", got, err)
	}
}
