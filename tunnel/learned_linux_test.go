package tunnel_test

import (
	"net/netip"
	"testing"
	"time"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/natflow"
)

// TestLearnedFlowsAnswerByTheHost: an engine that begins anew sends the answers of flows that the host has
// translated to the host, from the first one on, whether their client is there when it is told of them, comes
// afterwards, or is a peer.
func TestLearnedFlowsAnswerByTheHost(t *testing.T) {
	const a, b, later, remote, newcomer = "10.1.1.5", "10.1.1.6", "10.1.1.7", "10.1.2.7", "10.1.9.7"
	told := func(client, backend string, proto uint8, clientPort, backendPort uint16,
		left time.Duration) natflow.Translated {
		return natflow.Translated{Client: netip.AddrPortFrom(netip.MustParseAddr(client), clientPort),
			Backend: netip.AddrPortFrom(netip.MustParseAddr(backend), backendPort), Proto: proto, Left: left}
	}
	n := startPods(t, tunnel.Config{Workers: 2})
	n.Pause()
	n.Learn([]natflow.Translated{
		told(a, b, encap.ProtoUDP, 4000, 53, time.Minute), told(a, b, encap.ProtoTCP, 4000, 80, time.Hour),
		told(a, b, encap.ProtoICMP, 4, 4, time.Minute),
		told("fd00:1:1::5", "fd00:1:1::6", encap.ProtoTCP, 4000, 80, time.Hour),
		told(a, remote, encap.ProtoTCP, 4000, 80, time.Hour), told(remote, b, encap.ProtoTCP, 4000, 80, time.Hour),
		told(later, b, encap.ProtoTCP, 4000, 80, time.Hour), told(newcomer, b, encap.ProtoTCP, 4000, 80, time.Hour),
		told(a, b, encap.ProtoUDP, 4009, 53, 0), told(a, a, encap.ProtoUDP, 4010, 53, time.Hour),
	})
	n.Resume()
	answer := func(what, from string, c conversation, client, backend, at string) {
		t.Helper()
		n.send(t, what, from, c(t, client, backend, true), at)
	}
	answer("UDP", "b", udpOf(4000, 53), a, b, "host")
	answer("TCP", "b", tcpOf(4000, 80), a, b, "host")
	answer("echo", "b", echoOf(4), a, b, "host")
	answer("IPv6", "b", tcpOf(4000, 80), "fd00:1:1::5", "fd00:1:1::6", "host")
	answer("another flow", "b", tcpOf(4001, 80), a, b, "a")
	answer("one that is over", "b", udpOf(4009, 53), a, b, "a")
	answer("a peer's backend", "wire", tcpOf(4000, 80), a, remote, "host")
	answer("a peer's client", "b", tcpOf(4000, 80), remote, b, "host")
	n.send(t, "the client goes straight", "a", tcpOf(4000, 80)(t, a, b, false), "b")
	answer("and its answer", "b", tcpOf(4000, 80), a, b, "a")

	n.ports["later"] = attachPod(t, n.Engine, 0, later)
	answer("a pod that comes later", "b", tcpOf(4000, 80), later, b, "host")
	s := spec()
	s.Peers = append(s.Peers, tunnel.PeerSpec{Name: "newcomer", Addr: netip.MustParseAddr("192.0.2.33"),
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.9.0/24")}})
	table, err := tunnel.NewTable(encap.FormatIP, s)
	if err != nil {
		t.Fatal(err)
	}
	n.Swap(table)
	answer("a peer that comes later", "b", tcpOf(4000, 80), newcomer, b, "host")
	answer("another flow of its", "b", tcpOf(4001, 80), newcomer, b, "wire")
	balanced(t, n.Stats())
}
