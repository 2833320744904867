package tunnel_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// ipipNode is node A of spec with a raw socket on a wire to a host at b, which has a raw socket of its own,
// and knows nothing of ours.
func ipipNode(t *testing.T) (n *node, peer *net.IPConn, b *host) {
	t.Helper()
	a := newHost(t)
	b = newHost(t)
	wire(t, a, b, "192.0.2.1/24", "192.0.2.2/24", 1500)
	b.Do(t, func() error { return addAddr("eth0", "192.0.2.9/24") })
	n = &node{host: memory(t, netip.AddrPort{})}
	var err error
	if n.Engine, err = tunnel.New(tunnel.Config{Format: encap.FormatIPIP}); err != nil {
		t.Fatal(err)
	}
	a.Do(t, func() error {
		s, err := port.ListenIPIP(port.UDPOptions{Local: outer("192.0.2.1")})
		if err == nil {
			_, err = n.Attach(s, tunnel.RoleUnderlay)
		}
		return err
	})
	if _, err := n.Attach(n.host, tunnel.RoleHost); err != nil {
		t.Fatal(err)
	}
	swapTo(t, n.Engine, encap.FormatIPIP, ipipSpec())
	b.Do(t, func() error { peer, err = net.ListenIP("ip4:4", &net.IPAddr{IP: net.IPv4zero}); return err })
	t.Cleanup(func() { _ = peer.Close() })
	running(t, n.Engine)
	return n, peer, b
}

// TestIPIPOnTheWire looks at what leaves as another implementation reads it, and sends what that one makes.
func TestIPIPOnTheWire(t *testing.T) {
	n, peer, _ := ipipNode(t)
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = peer.SetReadDeadline(time.Now().Add(within))
	read := func() gopacket.Packet {
		b := make([]byte, 65536)
		var size int
		var bad error
		// net.IPConn takes the header off.
		if err := raw.Read(func(fd uintptr) bool {
			size, _, bad = unix.Recvfrom(int(fd), b, 0)
			return bad != unix.EAGAIN
		}); err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		return gopacket.NewPacket(b[:size], layers.LayerTypeIPv4, gopacket.Default)
	}
	inner := udp4(t, "10.1.1.5", "10.1.2.7", 100, func(ip *layers.IPv4) { ip.TOS = 0xb9 }) // DSCP EF, ECT(1)
	full := udp4(t, "10.1.1.5", "10.1.2.7", 1480-28, nil)
	for _, want := range [][]byte{inner, full} {
		n.host.Inject(tunneltest.Datagram{Data: want})
		p := read()
		o := p.Layers()[0].(*layers.IPv4)
		if o.Protocol != layers.IPProtocolIPv4 || o.Flags != layers.IPv4DontFragment || o.IHL != 5 || o.TTL < 32 ||
			int(o.Length) != 20+len(want) {
			t.Errorf("outer header %+v of a packet of %d bytes", o, len(want))
		}
		if ecn := want[1] & 3; o.TOS != ecn {
			t.Errorf("outer type of service %#x, of an inner one of %#x", o.TOS, want[1])
		}
		if !bytes.Equal(o.Payload, want) {
			t.Errorf("inner %x, want %x", o.Payload, want)
		}
	}
	n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.1.5", "10.1.2.7", 1481-28, nil)})
	if d, ok := n.host.Next(within); !ok || len(d.Data) < 28 || d.Data[20] != 3 || d.Data[21] != 4 ||
		d.Data[26] != 1480>>8 || d.Data[27] != 1480&0xff {
		t.Errorf("one byte more is answered by %x", d.Data)
	}

	send := func(src string, tos int, options bool, b []byte) {
		t.Helper()
		ip := &layers.IPv4{Version: 4, IHL: 5, TOS: uint8(tos), TTL: 64, Protocol: layers.IPProtocolIPv4,
			SrcIP: net.ParseIP(src).To4(), DstIP: net.IPv4(192, 0, 2, 1).To4()}
		if options { // router alert, RFC 2113
			ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
		packet := encode(t, ip, gopacket.Payload(b))
		var bad error
		if err := raw.Control(func(fd uintptr) {
			bad = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_HDRINCL, 1)
			if bad == nil {
				bad = unix.Sendto(int(fd), packet, 0, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}})
			}
		}); err != nil || bad != nil {
			t.Fatal(err, bad)
		}
	}
	good := udp4(t, "10.1.2.7", "10.1.1.5", 100, nil)
	ce := bytes.Clone(udp4(t, "10.1.2.7", "10.1.1.5", 100, func(ip *layers.IPv4) { ip.TOS = 2 }))
	wantCE := udp4(t, "10.1.2.7", "10.1.1.5", 100, func(ip *layers.IPv4) { ip.TOS = 3 })
	for name, c := range map[string]struct {
		tos      int
		options  bool
		in, want []byte
	}{
		"as it is":           {0, false, good, good},
		"with outer options": {0, true, good, good},
		"congested outside":  {3, false, ce, wantCE},
		"with padding":       {0, false, append(bytes.Clone(good), 0, 0, 0), good},
	} {
		send("192.0.2.2", c.tos, c.options, c.in)
		if d, ok := n.host.Next(within); !ok || !bytes.Equal(d.Data, c.want) {
			t.Errorf("%s: %x, want %x", name, d.Data, c.want)
		}
	}

	before := n.Stats().Ingress
	for _, c := range []struct {
		src    string
		b      []byte
		reason port.DropReason
	}{
		{"192.0.2.9", good, port.DropUnknownPeer},
		{"192.0.2.2", nil, port.DropMalformed},
		{"192.0.2.2", []byte{0x45}, port.DropMalformed},
		{"192.0.2.2", udp4(t, "10.1.3.7", "10.1.1.5", 9, nil), port.DropForeignSource},
		{"192.0.2.2", udp4(t, "10.1.2.7", "10.1.3.5", 9, nil), port.DropForeignDest},
		{"192.0.2.2", udp6(t, "fd00:1:2::7", "fd00:1:1::5", 9), port.DropForeignSource},
		{"192.0.2.2", udp4(t, "10.1.2.7", "10.1.1.0", 40, func(ip *layers.IPv4) {
			ip.Protocol = layers.IPProtocolIPv4
		}), port.DropNested},
	} {
		send(c.src, 0, false, c.b)
		if c.b == nil {
			c.b = []byte{}
		}
		before.Received++
		s := settled(t, n, n.Stats().Egress.Received+before.Received)
		if got := s.Ingress.Drops[c.reason]; got != before.Drops[c.reason]+1 {
			t.Errorf("from %s, %x: no drop as %v: %v", c.src, c.b, c.reason, s.Ingress.Drops)
		}
		before = s.Ingress
	}
	// GRO joins datagrams of UDP, and a raw socket is not told where: what may be such is dropped.
	joined := udp4(t, "10.1.2.7", "10.1.1.5", 1100, nil)
	none := bytes.Clone(good)
	none[26], none[27] = 0, 0
	s := ipipSpec()
	s.MTU = 1000
	for _, c := range []struct {
		joins bool
		b     []byte
		want  []byte // nil for dropped
	}{
		{false, partial(t, joined), nil}, {false, partial(t, good), good}, {false, none, none},
		{true, partial(t, good), nil}, {true, none, nil}, {true, good, good},
	} {
		s.CoalescedUDP = c.joins
		swapTo(t, n.Engine, encap.FormatIPIP, s)
		send("192.0.2.2", 0, false, c.b)
		before.Received++
		settled(t, n, n.Stats().Egress.Received+before.Received)
		if c.want != nil {
			if d, ok := n.host.Next(within); !ok || !bytes.Equal(d.Data, c.want) {
				t.Errorf("joins %v: %x, want %x", c.joins, d.Data, c.want)
			}
		} else if got := n.Stats().Ingress.Drops[port.DropMalformed]; got !=
			before.Drops[port.DropMalformed]+1 {
			t.Errorf("joins %v: a packet of %d bytes is delivered", c.joins, len(c.b))
		}
		before = n.Stats().Ingress
	}
	balanced(t, n.Stats())
}

// ipipSpec is spec without IPv6.
func ipipSpec() tunnel.Spec {
	s := spec()
	s.MTU = 1480
	for i := range s.Peers {
		s.Peers[i].Subnets = s.Peers[i].Subnets[:1]
	}
	return s
}

// TestIPIPTable has peers that ipip cannot serve, and none of what needs UDP.
func TestIPIPTable(t *testing.T) {
	s := spec()
	s.Peers = append(s.Peers, tunnel.PeerSpec{Name: "six", Addr: addr("2001:db8::2"),
		Subnets: prefixes("10.1.9.0/24")})
	if _, err := tunnel.NewTable(encap.FormatIPIP, s); err == nil {
		t.Error("a peer at an address of IPv6 is taken")
	}
}

// What ICMP says of packets of ipip is about the protocol, not about a port. A kernel that knows the protocol
// and has no device for it says "port unreachable" of what a raw socket takes, too, so that this is not
// believed of a peer whose packets arrive.
func TestIPIPIsRefused(t *testing.T) {
	n, peer, b := ipipNode(t)
	var icmp *net.IPConn
	b.Do(t, func() (err error) {
		icmp, err = net.ListenIP("ip4:1", &net.IPAddr{IP: net.IPv4(192, 0, 2, 2)})
		return err
	})
	defer func() { _ = icmp.Close() }()
	told := func(what string, do func(), want tunnel.Unreachable) {
		t.Helper()
		var got tunnel.Unreachable
		await.OK(t, what, func() error {
			do() // a kernel sends few of these messages a second
			for _, p := range n.Peers() {
				if p.Addr == addr("192.0.2.2") {
					got = p.Unreachable
				}
			}
			if got.Why != want.Why || got.By != addr("192.0.2.2") || got.Doubtful != want.Doubtful {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	portUnreachable := func() {
		quoted := encode(t, &layers.IPv4{Version: 4, IHL: 5, TTL: 60, Protocol: layers.IPProtocolIPv4,
			SrcIP: net.IPv4(192, 0, 2, 1).To4(), DstIP: net.IPv4(192, 0, 2, 2).To4()},
			gopacket.Payload(udp4(t, "10.1.1.5", "10.1.2.7", 9, nil)))
		m := encode(t, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(quoted))
		if _, err := icmp.WriteTo(m, &net.IPAddr{IP: net.IPv4(192, 0, 2, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	told("a port unreachable of a silent peer", portUnreachable, tunnel.Unreachable{Why: port.UnreachablePort})
	if _, err := peer.WriteTo(udp4(t, "10.1.2.7", "10.1.1.5", 100, nil),
		&net.IPAddr{IP: net.IPv4(192, 0, 2, 1)}); err != nil {
		t.Fatal(err)
	}
	if _, ok := n.host.Next(within); !ok {
		t.Fatal("nothing arrives")
	}
	told("a port unreachable of one whose packets arrive", portUnreachable,
		tunnel.Unreachable{Why: port.UnreachablePort, Doubtful: true})
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	told("a protocol unreachable", func() {
		n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.1.5", "10.1.2.7", 100, nil)})
	}, tunnel.Unreachable{Why: port.UnreachableProtocol})
}
