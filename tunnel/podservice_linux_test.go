package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// podNode is a node with two pods, and what each of its ports is called in tests.
type podNode struct {
	*node
	ports map[string]*tunneltest.Port
}

func startPods(t testing.TB, cfg tunnel.Config) *podNode {
	n := &podNode{node: start(t, spec(), cfg)}
	n.ports = map[string]*tunneltest.Port{
		"host": n.host, "wire": n.wire,
		"a": attachPod(t, n.Engine, 0, "10.1.1.5", "fd00:1:1::5"),
		"b": attachPod(t, n.Engine, 0, "10.1.1.6", "fd00:1:1::6"),
	}
	return n
}

// send has packet arrive at one port, and wants it at another and nowhere else; at none if that is "".
func (n *podNode) send(t testing.TB, what, from string, packet []byte, at string) {
	t.Helper()
	received := func() uint64 { s := n.Stats(); return s.Egress.Received + s.Ingress.Received }
	before := received()
	n.ports[from].Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: packet})
	deadline := time.Now().Add(within)
	for received() == before && time.Now().Before(deadline) {
		time.Sleep(50 * time.Microsecond)
	}
	for name, p := range n.ports {
		want := 0
		if name == at {
			want = 1
		}
		if got := p.Discard(); got != want {
			t.Errorf("%s, from %s: %d packets at %s, want %d (it belongs to %q); %+v", what, from, got, name, want,
				at, n.Stats())
		}
	}
}

// conversation makes packets of one flow between two addresses, a to b; with answer, b's to a.
type conversation func(t testing.TB, a, b string, answer bool) []byte

func packet(t testing.TB, src, dst string, proto layers.IPProtocol, l4 ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var ip gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	if s, d := net.ParseIP(src), net.ParseIP(dst); s.To4() != nil {
		h := &layers.IPv4{Version: 4, TTL: 64, Id: 7, Protocol: proto, SrcIP: s.To4(), DstIP: d.To4()}
		ip, network = h, h
	} else {
		h := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: s, DstIP: d}
		ip, network = h, h
	}
	if c, ok := l4[0].(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		_ = c.SetNetworkLayerForChecksum(network)
	}
	return encode(t, append([]gopacket.SerializableLayer{ip}, l4...)...)
}

func udpOf(client, server uint16) conversation {
	return func(t testing.TB, a, b string, answer bool) []byte {
		u := &layers.UDP{SrcPort: layers.UDPPort(client), DstPort: layers.UDPPort(server)}
		if answer {
			a, b, u.SrcPort, u.DstPort = b, a, u.DstPort, u.SrcPort
		}
		return packet(t, a, b, layers.IPProtocolUDP, u, gopacket.Payload("payload"))
	}
}

func tcpOf(client, server uint16) conversation {
	return func(t testing.TB, a, b string, answer bool) []byte {
		c := &layers.TCP{SrcPort: layers.TCPPort(client), DstPort: layers.TCPPort(server), SYN: true, Window: 9}
		if answer {
			a, b, c.SrcPort, c.DstPort, c.ACK = b, a, c.DstPort, c.SrcPort, true
		}
		return packet(t, a, b, layers.IPProtocolTCP, c)
	}
}

func echoOf(id uint16) conversation {
	return func(t testing.TB, a, b string, answer bool) []byte {
		if answer {
			a, b = b, a
		}
		if net.ParseIP(a).To4() != nil {
			kind := uint8(layers.ICMPv4TypeEchoRequest)
			if answer {
				kind = layers.ICMPv4TypeEchoReply
			}
			return packet(t, a, b, layers.IPProtocolICMPv4,
				&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0), Id: id, Seq: 1})
		}
		kind := uint8(layers.ICMPv6TypeEchoRequest)
		if answer {
			kind = layers.ICMPv6TypeEchoReply
		}
		return packet(t, a, b, layers.IPProtocolICMPv6,
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)},
			gopacket.Payload([]byte{byte(id >> 8), byte(id), 0, 1}))
	}
}

// TestServiceAnswersGoByTheHost plays the host's part: it hands packets back into its TUN with their
// destination translated. The answers of these flows, and of no others, go to it.
func TestServiceAnswersGoByTheHost(t *testing.T) {
	n := startPods(t, tunnel.Config{Workers: 2})
	for _, six := range []bool{false, true} {
		a, b, remote, service, host := "10.1.1.5", "10.1.1.6", "10.1.2.7", "10.96.0.10", "10.1.1.0"
		if six {
			a, b, remote, service, host = "fd00:1:1::5", "fd00:1:1::6", "fd00:1:2::7", "fd00:96::a", "fd00:1:1::"
		}
		for name, c := range map[string][2]conversation{
			"UDP": {udpOf(4000, 53), udpOf(4001, 53)}, "TCP": {tcpOf(4000, 80), tcpOf(4001, 80)},
			"echo": {echoOf(4), echoOf(5)},
		} {
			flow, other := c[0], c[1]
			says := func(what string) string { return fmt.Sprintf("%s, six=%v: %s", name, six, what) }
			send := func(what, from string, packet []byte, at string) {
				t.Helper()
				n.send(t, says(what), from, packet, at)
			}
			// A backend of this node.
			send("to the service", "a", flow(t, a, service, false), "host")
			send("translated, to the backend", "host", flow(t, a, b, false), "b")
			send("the backend's answer", "b", flow(t, a, b, true), "host")
			send("the answer, translated back", "host", flow(t, a, service, true), "a")
			send("another flow of the two", "b", other(t, a, b, true), "a")
			send("another flow the other way", "a", other(t, b, a, true), "b")
			if name != "echo" {
				send("the backend's ICMP error", "b", icmpAbout(t, b, flow(t, a, b, false)), "host")
				send("one about another flow", "b", icmpAbout(t, b, other(t, a, b, false)), "a")
			}
			send("straight, by the same ports", "a", flow(t, a, b, false), "b")
			send("the answer to that", "b", flow(t, a, b, true), "a")
			// A backend of another node.
			send("translated, to another node", "host", flow(t, a, remote, false), "wire")
			send("the other node's answer", "wire", flow(t, a, remote, true), "host")
			send("another flow from there", "wire", other(t, a, remote, true), "a")
			if name != "echo" {
				send("that node's ICMP error", "wire", icmpAbout(t, remote, flow(t, a, remote, false)), "host")
			}
			send("straight to the other node", "a", flow(t, a, remote, false), "wire")
			send("and its answer", "wire", flow(t, a, remote, true), "a")
			// A client of another node, whose packet the host translated to a pod here.
			send("a peer's, translated", "host", flow(t, remote, b, false), "b")
			send("the answer to the peer", "b", flow(t, remote, b, true), "host")
			send("another flow to the peer", "b", other(t, remote, b, true), "wire")
			send("straight from the peer", "wire", flow(t, remote, b, false), "b")
			send("the answer to that one", "b", flow(t, remote, b, true), "wire")
			// The client itself is the backend: the host masquerades.
			send("to itself, masqueraded", "host", flow(t, host, a, false), "a")
			send("its answer", "a", flow(t, host, a, true), "host")
			send("to itself, not masqueraded", "host", flow(t, a, a, false), "")
		}
	}
	balanced(t, n.Stats())
}

// icmpAbout is an ICMP error from an address about a packet.
func icmpAbout(t testing.TB, from string, about []byte) []byte {
	t.Helper()
	b, err := encap.AppendICMPError(nil, encap.ICMPNoRoute, addr(from), 0, about)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFragmentsOfAServiceFollowTheFirst: later fragments have no ports.
func TestFragmentsOfAServiceFollowTheFirst(t *testing.T) {
	n := startPods(t, tunnel.Config{Workers: 2})
	for _, six := range []bool{false, true} {
		a, b := "10.1.1.5", "10.1.1.6"
		if six {
			a, b = "fd00:1:1::5", "fd00:1:1::6"
		}
		n.send(t, "translated", "host", udpOf(4000, 53)(t, a, b, false), "b")
		for _, answer := range []struct {
			client uint16
			at     string
		}{{4000, "host"}, {4001, "a"}} {
			u := &layers.UDP{SrcPort: 53, DstPort: layers.UDPPort(answer.client)}
			for i, f := range fragments(t, packet(t, b, a, layers.IPProtocolUDP, u,
				gopacket.Payload(make([]byte, 3000))), uint32(answer.client)) {
				n.send(t, fmt.Sprintf("six=%v, fragment %d to port %d", six, i, answer.client), "b", f, answer.at)
			}
		}
	}
	balanced(t, n.Stats())
}

// fragments cuts a packet as its sender does.
func fragments(t testing.TB, whole []byte, id uint32) (l [][]byte) {
	t.Helper()
	if whole[0]>>4 == 4 {
		binary.BigEndian.PutUint16(whole[4:], uint16(id))
		for off := 0; ; {
			f, next, err := encap.Fragment4(nil, whole, 1200, off)
			if err != nil {
				t.Fatal(err)
			}
			if l = append(l, f); next == 0 {
				return l
			}
			off = next
		}
	}
	payload := whole[40:]
	for off := 0; off < len(payload); off += 1200 {
		part := payload[off:min(len(payload), off+1200)]
		h := bytes.Clone(whole[:48])
		binary.BigEndian.PutUint16(h[4:], uint16(8+len(part)))
		h[6], h[40], h[41] = 44, 17, 0
		v := uint16(off)
		if off+1200 < len(payload) {
			v |= 1
		}
		binary.BigEndian.PutUint16(h[42:], v)
		binary.BigEndian.PutUint32(h[44:], id)
		l = append(l, append(h, part...))
	}
	return l
}
