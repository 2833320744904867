package test

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/test/await"
	"weft/test/lab"
)

// behindGateway moves a node to a segment of its own, 198.19.0.0/24, with a router to the others: eth0
// is its link to them, eth1 to the node.
func behindGateway(t *testing.T, l *lab.Lab, n *lab.Node) (router *lab.Host) {
	t.Helper()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	router = newcomer(t, l, 200)
	if err := router.NS.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	sh(t, n.Host, "ip link del eth0")
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "eth0",
		PeerNamespace: netlink.NsFd(n.NS.FD())}
	if err := router.NS.Netlink().LinkAdd(cable); err != nil {
		t.Fatal(err)
	}
	sh(t, router, "ip addr add 198.19.0.1/24 dev eth1; ip link set eth1 up")
	sh(t, n.Host, "ip addr add 198.19.0.2/24 dev eth0; ip link set eth0 up; ip route add default via 198.19.0.1")
	hosts := []*lab.Host{l.Store.Host}
	for _, other := range l.Nodes() {
		if other != n {
			hosts = append(hosts, other.Host)
		}
	}
	for _, h := range hosts {
		sh(t, h, "ip route add 198.19.0.0/24 via 198.18.0.200")
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	return router
}

// The underlay may be a macvlan: a node in a container, with its link on that of the machine. Then a gateway
// is between the nodes: frames go to its MAC, also when it gets another one, whether it announces that or
// only answers when it is asked. Behind it is a link of a smaller MTU: datagrams that may be fragmented are
// reassembled; if they may not, the pods' packets become smaller.
func TestRawOnOtherLinks(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	if err := b.Node.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	machine := newcomer(t, l, 150)
	below, err := machine.NS.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	sh(t, b.Node.Host, "ip link del eth0")
	if err := machine.NS.Netlink().LinkAdd(&netlink.Macvlan{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0", ParentIndex: below.Attrs().Index,
			Namespace: netlink.NsFd(b.Node.NS.FD())},
		Mode: netlink.MACVLAN_MODE_BRIDGE,
	}); err != nil {
		t.Fatalf("macvlan (CONFIG_MACVLAN): %v", err)
	}
	sh(t, b.Node.Host, "ip addr add 198.18.0.2/16 dev eth0; ip link set eth0 up")
	if err := b.Node.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	onPath(t, b.Node, "raw")
	sentA, sentB := spy(t, a.Node.Host), spy(t, b.Node.Host)
	reach(t, await.Patience, b, a, 4)
	byFrames(t, a, b, sentA, hardwareAddr(t, b.Node.Host, "eth0"))
	byFrames(t, b, a, sentB, hardwareAddr(t, a.Node.Host, "eth0"))
	carries(t, a, b, 4)

	router := behindGateway(t, l, b.Node)
	onPath(t, a.Node, "raw")
	onPath(t, b.Node, "raw")
	byFrames(t, a, b, sentA, hardwareAddr(t, router, "eth0"))
	byFrames(t, b, a, sentB, hardwareAddr(t, router, "eth1"))
	carries(t, a, b, 4)

	for i, announced := range []string{"1", "0"} {
		// as routers that share an address do, and one whose card was replaced
		if err := router.NS.Sysctl("net/ipv4/conf/eth0/arp_notify", announced); err != nil {
			t.Fatal(err)
		}
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 0x90 + byte(i)}
		sh(t, router, "ip link set eth0 address "+mac.String())
		reach(t, await.Patience, b, a, 4)
		byFrames(t, a, b, sentA, mac)
	}
	streams(t, a.Endpoint(4), b.Endpoint(4))

	before := reassembled(t, b.Node.Host)
	sh(t, router, `ip route replace 198.19.0.0/24 dev eth1 mtu lock 1300
		nft 'table ip fragments { chain in { type filter hook prerouting priority mangle; ip protocol udp ip frag-off set 0; }; }'`)
	sh(t, b.Node.Host, "nft delete table inet spy") // fragments do not pass INPUT by
	carries(t, a, b, 4)
	if n := reassembled(t, b.Node.Host) - before; n < 1000 {
		t.Errorf("%d datagrams were put together: the link's MTU was nobody's concern", n)
	}

	sh(t, router, "nft delete table ip fragments")
	before = reassembled(t, b.Node.Host)
	streams(t, a.Endpoint(4), b.Endpoint(4))
	datagrams(t, a, b, 4, 1200)
	if n := reassembled(t, b.Node.Host) - before; n > 0 {
		t.Errorf("%d datagrams came in fragments that were not allowed", n)
	}
}

// Whatever happens to a node's link at run time, packets flow again within seconds in both directions.
// Another MTU is TestANodeIsRenumbered's.
func TestRawFollowsTheLink(t *testing.T) {
	l := shared(t, ipv4Only)
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	sentA, sentB := spy(t, a.Node.Host), spy(t, b.Node.Host)
	both := func(t *testing.T) {
		t.Helper()
		reach(t, await.Patience, b, a, 4)
		byFrames(t, a, b, sentA, hardwareAddr(t, b.Node.Host, "eth0"))
		byFrames(t, b, a, sentB, hardwareAddr(t, a.Node.Host, "eth0"))
		onPath(t, b.Node, "raw")
	}
	both(t)
	own := hardwareAddr(t, b.Node.Host, "eth0").String()
	for _, c := range []struct{ name, do string }{
		{"another MAC", "ip link set eth0 address 02:00:00:00:00:77"},
		{"down and up", "ip link set eth0 down; sleep 0.3; ip link set eth0 up"},
		{"down, another MAC and up", "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:78; ip link " +
			"set eth0 up"},
		{"its own MAC again", "ip link set eth0 address " + own},
		{"the neighbour forgotten", "ip neigh flush dev eth0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sh(t, b.Node.Host, c.do)
			both(t)
			streams(t, a.Endpoint(4), b.Endpoint(4))
		})
	}
	if s := onPath(t, a.Node, "raw"); len(s.Backend.Notes) > 0 {
		t.Errorf("notes %q", s.Backend.Notes)
	}
}
