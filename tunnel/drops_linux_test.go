package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// balanced checks that every packet received was delivered or dropped for a reason.
func balanced(t *testing.T, s tunnel.Stats) {
	t.Helper()
	if err := imbalance(s); err != nil {
		t.Error(err)
	}
}

func imbalance(s tunnel.Stats) error {
	for name, f := range map[string]tunnel.Flow{"egress": s.Egress, "ingress": s.Ingress} {
		sum := f.Delivered
		for _, n := range f.Drops {
			sum += n
		}
		if f.Received != sum {
			return fmt.Errorf("%s: received %d, delivered and dropped %d: %+v", name, f.Received, sum, f)
		}
	}
	return nil
}

// accounted is balanced for an engine whose hosts still say this and that of their own: its counters are read
// one after another, and a packet in between is in some of them only.
func accounted(t *testing.T, e *tunnel.Engine) (s tunnel.Stats) {
	t.Helper()
	await.OK(t, "balanced books", func() error {
		s = e.Stats()
		return imbalance(s)
	})
	return s
}

// settled polls the counters until n packets have been received in all.
func settled(t *testing.T, n *node, want uint64) (s tunnel.Stats) {
	t.Helper()
	await.Within(t, within, "packets received", func() error {
		s = n.Stats()
		if got := s.Egress.Received + s.Ingress.Received; got < want {
			return fmt.Errorf("%d, want %d", got, want)
		}
		return nil
	})
	return s
}

// learnt waits until a node knows the path MTU to its peer.
func learnt(t *testing.T, n *node, want int) {
	t.Helper()
	await.Within(t, within, "the path MTU", func() error {
		if p := n.Peers()[0]; p.PathMTU != want {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// TestDropsAreCounted sends a packet for each reason that a peer, or somebody who is none, can give, and for
// each reason of our own host's, and sees it counted under that reason and nowhere delivered; the sender of
// our own reads an ICMP error where one is due to him. Which packets have which reason is TestDecideIn's and
// TestDecideOut's.
func TestDropsAreCounted(t *testing.T) {
	nested := udp4(t, "10.1.2.7", "10.1.1.0", 9, nil)
	binary.BigEndian.PutUint16(nested[22:], udpPort)
	to := func(src, dst string) []byte { return udp4(t, src, dst, 9, nil) }
	noTTL := to("10.1.2.7", "10.1.1.5")
	noTTL[8] = 0
	const peer, stranger = "192.0.2.2", "203.0.113.9"
	n := start(t, spec(), tunnel.Config{Workers: 1})
	total := uint64(0)
	for _, tt := range []struct {
		outer  string // "" for our host's own
		packet []byte
		reason port.DropReason
		icmp   string // "" for none
	}{
		{peer, []byte{0x45}, port.DropMalformed, ""},
		{peer, nil, port.DropMalformed, ""},
		{stranger, to("10.1.2.7", "10.1.1.5"), port.DropUnknownPeer, ""},
		{"192.0.2.1", to("10.1.2.7", "10.1.1.5"), port.DropOwnSource, ""},
		{peer, noTTL, port.DropTTL, ""},
		{peer, to("127.0.0.1", "10.1.1.5"), port.DropMartian, ""},
		{peer, to("10.1.3.7", "10.1.1.5"), port.DropForeignSource, ""},
		{peer, to("10.1.2.7", "10.1.3.5"), port.DropForeignDest, ""},
		{peer, nested, port.DropNested, ""},

		{"", []byte{0x45, 0}, port.DropMalformed, ""},
		{"", to("10.1.1.5", "224.0.0.251"), port.DropMulticast, ""},
		{"", to("10.1.3.7", "10.1.2.7"), port.DropForeignSource, ""},
		{"", to("10.1.1.5", "10.1.9.7"), port.DropNoRoute, "DestinationUnreachable(Net)"},
		{"", udp6(t, "fd00:1:1::5", "fd00:1:9::7", 9), port.DropNoRoute, "DestinationUnreachable(NoRouteToDst)"},
		{"", udp6(t, "fd00:1:1::5", "fd00:1:3::7", 9), port.DropUnsupported,
			"DestinationUnreachable(NoRouteToDst)"},
		{"", udp4(t, "10.1.1.5", "10.1.4.7", 1400, nil), port.DropTooBig,
			"DestinationUnreachable(FragmentationNeeded) 1300"},
		{"", udp6(t, "fd00:1:1::5", "fd00:1:4::7", 1400), port.DropTooBig, "PacketTooBig 1300"},
		{"", icmpError(t, "10.1.1.5", "10.1.9.7"), port.DropNoRoute, ""},
	} {
		in, flow := n.host, func(s tunnel.Stats) tunnel.Flow { return s.Egress }
		d := tunneltest.Datagram{Data: tt.packet}
		if tt.outer != "" {
			in, flow = n.wire, func(s tunnel.Stats) tunnel.Flow { return s.Ingress }
			d.Outer = outer(tt.outer)
		}
		what := fmt.Sprintf("from %q %x, %v", tt.outer, tt.packet[:min(len(tt.packet), 40)], tt.reason)
		before := flow(n.Stats()).Drops[tt.reason]
		in.Inject(d)
		total++
		if got := flow(settled(t, n, total)).Drops; got[tt.reason] != before+1 {
			t.Errorf("%s: not counted: %v", what, got)
		}
		if d, ok := n.wire.Next(0); ok {
			t.Errorf("%s: sent %x", what, d.Data)
		}
		if d, ok := n.host.Next(0); ok != (tt.icmp != "") {
			t.Errorf("%s: the host gets %x, want %q", what, d.Data, tt.icmp)
		} else if ok {
			if got := describeICMP(t, d.Data, tt.packet); got != tt.icmp {
				t.Errorf("%s: told the sender %q, want %q", what, got, tt.icmp)
			}
		}
	}
	s := n.Stats()
	balanced(t, s)
	if s.Ingress.Delivered+s.Egress.Delivered != 0 {
		t.Errorf("%d delivered, want none", s.Ingress.Delivered+s.Egress.Delivered)
	}
	if l := n.Strangers(); len(l) != 1 || l[0].Addr != addr(stranger) || l[0].Packets != 1 {
		t.Errorf("strangers %+v, want the one at %s", l, stranger)
	}
	for _, p := range n.Peers() {
		if p.Name == "b" && p.Drops[port.DropForeignSource] != 1 {
			t.Errorf("peer b has %d foreign sources against it, want 1", p.Drops[port.DropForeignSource])
		}
	}
}

func icmpError(t testing.TB, src, dst string) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: net.ParseIP(src).To4(),
		DstIP: net.ParseIP(dst).To4()}
	return encode(t, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 0)},
		gopacket.Payload(make([]byte, 28)))
}

// describeICMP decodes an error with a decoder that is not ours, and checks that
// it goes to the offender's source, from us, with good checksums and a quote.
func describeICMP(t *testing.T, b, offender []byte) string {
	t.Helper()
	if b[0]>>4 == 6 {
		p := gopacket.NewPacket(b, layers.LayerTypeIPv6, gopacket.Default)
		ip, icmp := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6), p.Layer(layers.LayerTypeICMPv6)
		if icmp == nil || ip.SrcIP.String() != "fd00:1:1::" || !bytes.Equal(ip.DstIP, offender[8:24]) {
			t.Fatalf("no ICMPv6 from us to the sender: %v", p)
		}
		c := icmp.(*layers.ICMPv6)
		quote := c.Payload[4:]
		if !bytes.HasPrefix(offender, quote) || len(b) > 1280 {
			t.Errorf("the quote is not the offender's beginning: %x", quote)
		}
		if c.TypeCode.Type() == layers.ICMPv6TypePacketTooBig {
			return "PacketTooBig " + strconv.Itoa(int(binary.BigEndian.Uint32(c.Payload)))
		}
		return c.TypeCode.String()
	}
	p := gopacket.NewPacket(b, layers.LayerTypeIPv4, gopacket.Default)
	ip, icmp := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4), p.Layer(layers.LayerTypeICMPv4)
	if icmp == nil || ip.SrcIP.String() != "10.1.1.0" || !bytes.Equal(ip.DstIP, offender[12:16]) {
		t.Fatalf("no ICMP from us to the sender: %v", p)
	}
	c := icmp.(*layers.ICMPv4)
	if !bytes.HasPrefix(offender, c.Payload) || len(b) > 576 {
		t.Errorf("the quote is not the offender's beginning: %x", c.Payload)
	}
	if c.TypeCode.Code() == layers.ICMPv4CodeFragmentationNeeded {
		return c.TypeCode.String() + " " + strconv.Itoa(int(c.Seq))
	}
	return c.TypeCode.String()
}

// TestAForgerIsNotSaidAgainAndAgain has a pod that goes on sending with an address of another node's subnet,
// as one of a former subnet does until somebody deletes it: the log has one line of it, and the status the
// rest.
func TestAForgerIsNotSaidAgainAndAgain(t *testing.T) {
	var log bytes.Buffer // one worker writes it, and it is read once the books say that it has finished
	n := start(t, spec(), tunnel.Config{Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const many = 5
	for i := range uint64(many) {
		n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.3.7", "10.1.2.7", 9, nil)})
		settled(t, n, i+1)
	}
	if got := bytes.Count(log.Bytes(), []byte("another node's subnet")); got != 1 {
		t.Errorf("%d lines: %s", got, &log)
	}
	if l := n.Forgers(); len(l) != 1 || l[0].Addr != addr("10.1.3.7") || l[0].Packets != many {
		t.Errorf("forgers %v", l)
	}
}
