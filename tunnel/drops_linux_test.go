package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weft/encap"
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

// TestIngressDrops sends one packet for every reason to refuse one from the
// underlay, and sees it counted under that reason and nowhere delivered.
func TestIngressDrops(t *testing.T) {
	from := func(a string, b []byte) tunneltest.Datagram {
		return tunneltest.Datagram{Outer: outer(a), Data: b}
	}
	good := func(src, dst string) []byte { return udp4(t, src, dst, 9, nil) }
	nested := udp4(t, "10.1.2.7", "10.1.1.0", 9, nil)
	binary.BigEndian.PutUint16(nested[22:], udpPort)
	cut := func(b []byte, n int) []byte { return b[:n] }
	set := func(b []byte, i int, v byte) []byte { c := bytes.Clone(b); c[i] = v; return c }
	tests := map[string]struct {
		d      tunneltest.Datagram
		reason port.DropReason
	}{
		"empty":    {from("192.0.2.2", nil), port.DropMalformed},
		"one byte": {from("192.0.2.2", []byte{0x45}), port.DropMalformed},
		"no IP":    {from("192.0.2.2", bytes.Repeat([]byte{0x15}, 60)), port.DropMalformed},
		"IHL 4": {from("192.0.2.2", set(good("10.1.2.7", "10.1.1.5"), 0, 0x44)),
			port.DropMalformed},
		"cut short": {from("192.0.2.2", cut(good("10.1.2.7", "10.1.1.5"), 30)),
			port.DropMalformed},
		"IPv6 cut short": {from("192.0.2.2", cut(udp6(t, "fd00:1:2::7", "fd00:1:1::5", 9), 50)),
			port.DropMalformed},
		"a stranger": {from("203.0.113.9", good("10.1.2.7", "10.1.1.5")), port.DropUnknownPeer},
		"ourselves":  {from("192.0.2.1", good("10.1.2.7", "10.1.1.5")), port.DropOwnSource},
		"CE on Not-ECT": {tunneltest.Datagram{Outer: outer("192.0.2.2"), ECN: encap.CE,
			Data: good("10.1.2.7", "10.1.1.5")}, port.DropECN},
		"TTL 0": {from("192.0.2.2", set(good("10.1.2.7", "10.1.1.5"), 8, 0)),
			port.DropTTL},
		"loopback source":    {from("192.0.2.2", good("127.0.0.1", "10.1.1.5")), port.DropMartian},
		"unspecified source": {from("192.0.2.2", good("0.0.0.0", "10.1.1.5")), port.DropMartian},
		"multicast source":   {from("192.0.2.2", good("224.0.0.1", "10.1.1.5")), port.DropMartian},
		"broadcast source": {from("192.0.2.2", good("255.255.255.255", "10.1.1.5")),
			port.DropMartian},
		"link-local source": {from("192.0.2.2", good("169.254.1.1", "10.1.1.5")), port.DropMartian},
		"IPv6 link-local source": {from("192.0.2.2", udp6(t, "fe80::1", "fd00:1:1::5", 9)),
			port.DropMartian},
		"IPv6 loopback source": {from("192.0.2.2", udp6(t, "::1", "fd00:1:1::5", 9)), port.DropMartian},
		"IPv6 multicast destination": {from("192.0.2.2", udp6(t, "fd00:1:2::7", "ff02::1", 9)),
			port.DropMartian},
		"loopback destination":     {from("192.0.2.2", good("10.1.2.7", "127.0.0.1")), port.DropMartian},
		"multicast destination":    {from("192.0.2.2", good("10.1.2.7", "224.0.0.251")), port.DropMartian},
		"to itself":                {from("192.0.2.2", good("10.1.2.7", "10.1.2.7")), port.DropMartian},
		"source is another peer's": {from("192.0.2.2", good("10.1.3.7", "10.1.1.5")), port.DropForeignSource},
		"source is ours":           {from("192.0.2.2", good("10.1.1.6", "10.1.1.5")), port.DropForeignSource},
		"source is nobody's":       {from("192.0.2.2", good("8.8.8.8", "10.1.1.5")), port.DropForeignSource},
		"IPv6 source is another's": {from("192.0.2.2", udp6(t, "fd00:1:3::7", "fd00:1:1::5", 9)),
			port.DropForeignSource},
		"reflection":                   {from("192.0.2.2", good("10.1.2.7", "10.1.3.5")), port.DropForeignDest},
		"transit":                      {from("192.0.2.2", good("10.1.2.7", "8.8.8.8")), port.DropForeignDest},
		"the underlay as a way around": {from("192.0.2.2", good("10.1.2.7", "192.0.2.1")), port.DropForeignDest},
		"a tunnel in the tunnel":       {from("192.0.2.2", nested), port.DropNested},
	}
	n := start(t, spec(), tunnel.Config{Workers: 1})
	total := uint64(0)
	for name, tt := range tests {
		before := n.Stats().Ingress.Drops[tt.reason]
		n.wire.Inject(tt.d)
		total++
		if got := settled(t, n, total).Ingress.Drops; got[tt.reason] != before+1 {
			t.Errorf("%s: not counted as %v: %v", name, tt.reason, got)
		}
		if d, ok := n.host.Next(0); ok {
			t.Errorf("%s was delivered: %x", name, d.Data)
		}
	}
	s := n.Stats()
	balanced(t, s)
	if s.Ingress.Delivered != 0 {
		t.Errorf("%d delivered, want none", s.Ingress.Delivered)
	}
	if l := n.Strangers(); len(l) != 1 || l[0].Addr != addr("203.0.113.9") || l[0].Packets != 1 {
		t.Errorf("strangers %+v, want the one at 203.0.113.9", l)
	}
	for _, p := range n.Peers() {
		if p.Name == "b" && p.Drops[port.DropForeignSource] != 4 {
			t.Errorf("peer b has %d foreign sources against it, want 4", p.Drops[port.DropForeignSource])
		}
	}
}

// TestSourceCheck opens the checks one by one.
func TestSourceCheck(t *testing.T) {
	stranger := tunneltest.Datagram{Outer: outer("203.0.113.9"), Data: udp4(t, "10.1.2.7", "10.1.1.5", 9, nil)}
	foreign := tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: udp4(t, "8.8.8.8", "10.1.1.5", 9, nil)}
	own := tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: udp4(t, "10.1.1.6", "10.1.1.5", 9, nil)}
	transit := tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: udp4(t, "10.1.2.7", "10.1.3.5", 9, nil)}
	for name, tt := range map[string]struct {
		check   tunnel.SourceCheck
		allowed []netip.Prefix
		want    map[string]bool // delivered
	}{
		"strict":         {tunnel.CheckStrict, nil, map[string]bool{}},
		"strict allowed": {tunnel.CheckStrict, prefixes("8.8.8.0/24"), map[string]bool{"foreign": true}},
		"outer":          {tunnel.CheckOuter, nil, map[string]bool{"foreign": true}},
		"off":            {tunnel.CheckOff, nil, map[string]bool{"foreign": true, "stranger": true, "own": true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec()
			s.Check, s.AllowedSources = tt.check, tt.allowed
			n := start(t, s, tunnel.Config{Workers: 1})
			sent := uint64(0)
			for what, d := range map[string]tunneltest.Datagram{"stranger": stranger, "foreign": foreign, "own": own,
				"transit": transit} {
				n.wire.Inject(d)
				sent++
				settled(t, n, sent)
				if _, ok := n.host.Next(0); ok != tt.want[what] {
					t.Errorf("%s: delivered %v, want %v", what, ok, tt.want[what])
				}
			}
		})
	}
}

// TestEgressDrops does for the way out what TestIngressDrops does for the way in,
// and reads the ICMP error that the sender gets.
func TestEgressDrops(t *testing.T) {
	big := func(df bool) []byte {
		return udp4(t, "10.1.1.5", "10.1.4.7", 1400, func(ip *layers.IPv4) {
			if !df {
				ip.Flags = 0
			}
		})
	}
	tests := map[string]struct {
		packet []byte
		reason port.DropReason
		icmp   string // "" for none
	}{
		"malformed":           {[]byte{0x45, 0}, port.DropMalformed, ""},
		"multicast":           {udp4(t, "10.1.1.5", "224.0.0.251", 9, nil), port.DropMulticast, ""},
		"broadcast":           {udp4(t, "10.1.1.5", "255.255.255.255", 9, nil), port.DropMulticast, ""},
		"router solicitation": {udp6(t, "fe80::5", "ff02::2", 9), port.DropMulticast, ""},
		"link-local":          {udp6(t, "fd00:1:1::5", "fe80::7", 9), port.DropMartian, ""},
		"no route": {udp4(t, "10.1.1.5", "10.1.9.7", 9, nil), port.DropNoRoute,
			"DestinationUnreachable(Net)"},
		"no route, IPv6": {udp6(t, "fd00:1:1::5", "fd00:1:9::7", 9), port.DropNoRoute,
			"DestinationUnreachable(NoRouteToDst)"},
		"IPv6 to flannel": {udp6(t, "fd00:1:1::5", "fd00:1:3::7", 9), port.DropUnsupported,
			"DestinationUnreachable(NoRouteToDst)"},
		"too big": {big(true), port.DropTooBig, "DestinationUnreachable(FragmentationNeeded) 1300"},
		"too big, IPv6": {udp6(t, "fd00:1:1::5", "fd00:1:4::7", 1400), port.DropTooBig,
			"PacketTooBig 1300"},
		"another node's source": {udp4(t, "10.1.3.7", "10.1.2.7", 9, nil), port.DropForeignSource, ""},
		"an ICMP error itself":  {icmpError(t, "10.1.1.5", "10.1.9.7"), port.DropNoRoute, ""},
	}
	n := start(t, spec(), tunnel.Config{Workers: 1})
	total := uint64(0)
	for name, tt := range tests {
		before := n.Stats().Egress.Drops[tt.reason]
		n.host.Inject(tunneltest.Datagram{Data: tt.packet})
		total++
		if got := settled(t, n, total).Egress.Drops; got[tt.reason] != before+1 {
			t.Errorf("%s: not counted as %v: %v", name, tt.reason, got)
		}
		if d, ok := n.wire.Next(0); ok {
			t.Errorf("%s was sent: %x", name, d.Data)
		}
		d, ok := n.host.Next(0)
		switch {
		case ok != (tt.icmp != ""):
			t.Errorf("%s: wrote back %x, want %q", name, d.Data, tt.icmp)
		case ok:
			if got := describeICMP(t, d.Data, tt.packet); got != tt.icmp {
				t.Errorf("%s: told the sender %q, want %q", name, got, tt.icmp)
			}
		}
	}
	balanced(t, n.Stats())
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

// TestForgedSourcesStayAtTheirNode has sources of other nodes' leases, which are refused where they come
// from, and sources that may be the host's, which pass.
func TestForgedSourcesStayAtTheirNode(t *testing.T) {
	for name, tt := range map[string]struct {
		src     string
		check   tunnel.SourceCheck
		allowed []netip.Prefix
		want    bool // sent
	}{
		"a pod of ours":                     {"10.1.1.5", tunnel.CheckStrict, nil, true},
		"the overlay's own address":         {"10.1.1.0", tunnel.CheckStrict, nil, true},
		"this host's address":               {"192.0.2.1", tunnel.CheckStrict, nil, true},
		"a network behind this host":        {"172.16.0.9", tunnel.CheckStrict, nil, true},
		"a subnet that nobody has":          {"10.1.9.7", tunnel.CheckStrict, nil, true},
		"another node's subnet":             {"10.1.3.7", tunnel.CheckStrict, nil, false},
		"the receiver's own subnet":         {"10.1.2.8", tunnel.CheckStrict, nil, false},
		"another node's, allowed":           {"10.1.3.7", tunnel.CheckStrict, prefixes("10.1.3.0/24"), true},
		"another node's, checked outside":   {"10.1.3.7", tunnel.CheckOuter, nil, true},
		"another node's, without any check": {"10.1.3.7", tunnel.CheckOff, nil, true},
	} {
		s := spec()
		s.Check, s.AllowedSources = tt.check, tt.allowed
		n := start(t, s, tunnel.Config{Workers: 1})
		n.host.Inject(tunneltest.Datagram{Data: udp4(t, tt.src, "10.1.2.7", 9, nil)})
		stats := settled(t, n, 1)
		balanced(t, stats)
		if _, sent := n.wire.Next(0); sent != tt.want ||
			(stats.Egress.Drops[port.DropForeignSource] == 0) != tt.want {
			t.Errorf("%s: sent %v, want %v: %v", name, sent, tt.want, stats.Egress.Drops)
		}
		if l := n.Forgers(); (len(l) == 1 && l[0].Addr == addr(tt.src) && l[0].Packets == 1) == tt.want {
			t.Errorf("%s: forgers %v", name, l)
		}
	}
}
