package tunnel_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

func mac(i byte) encap.MAC { return encap.MAC{0x0e, 0, 0, 0, 0, i} }

// vxlanSpec is spec with what format vxlan needs. Peer b6 is the IPv6 half of b.
func vxlanSpec() tunnel.Spec {
	s := spec()
	s.VNI, s.MAC4, s.MAC6 = 77, mac(1), mac(0x61)
	s.Self = append(s.Self, addr("2001:db8::1"))
	for i := range s.Peers {
		s.Peers[i].MAC = mac(byte(i + 2))
		s.Peers[i].Recv = port.Supported
	}
	s.Peers[0].Subnets = prefixes("10.1.2.0/24")
	s.Peers = append(s.Peers, tunnel.PeerSpec{Name: "b", Addr: addr("2001:db8::2"), Weft: true, MAC: mac(0x62),
		Subnets: prefixes("fd00:1:2::/64")})
	return s
}

// framed is what a kernel's vxlan device sends, made by another implementation.
func framed(t *testing.T, vni uint32, dst, src encap.MAC, inner []byte) []byte {
	t.Helper()
	kind := layers.EthernetTypeIPv4
	if inner[0]>>4 == 6 {
		kind = layers.EthernetTypeIPv6
	}
	return encode(t, &layers.VXLAN{ValidIDFlag: true, VNI: vni},
		&layers.Ethernet{SrcMAC: net.HardwareAddr(src[:]), DstMAC: net.HardwareAddr(dst[:]), EthernetType: kind},
		gopacket.Payload(inner))
}

func TestVXLANCarries(t *testing.T) {
	n := start(t, vxlanSpec(), tunnel.Config{Format: encap.FormatVXLAN})
	six := memory(t, outer("2001:db8::1"))
	if _, err := n.Attach(six, tunnel.RoleUnderlay); err != nil {
		t.Fatal(err)
	}
	in4, in6 := udp4(t, "10.1.1.5", "10.1.2.7", 100, nil), udp6(t, "fd00:1:1::5", "fd00:1:2::7", 100)
	for _, c := range []struct {
		wire     *tunneltest.Port
		to       netip.AddrPort
		dst, src encap.MAC
		inner    []byte
	}{
		{n.wire, outer("192.0.2.2"), mac(2), mac(1), in4},
		{six, outer("2001:db8::2"), mac(0x62), mac(0x61), in6},
	} {
		n.host.Inject(tunneltest.Datagram{Data: c.inner})
		d, ok := c.wire.Next(within)
		if want := framed(t, 77, c.dst, c.src, c.inner); !ok || d.Outer != c.to || !bytes.Equal(d.Data, want) {
			t.Errorf("to %v:\n%x, want\n%x", d.Outer, d.Data, want)
		}
	}
	for _, c := range []struct {
		wire  *tunneltest.Port
		from  string
		own   encap.MAC
		inner []byte
	}{
		{n.wire, "192.0.2.2", mac(1), udp4(t, "10.1.2.7", "10.1.1.5", 100, nil)},
		{six, "2001:db8::2", mac(0x61), udp6(t, "fd00:1:2::7", "fd00:1:1::5", 100)},
	} {
		for name, b := range map[string][]byte{"complete": c.inner, "partial": partial(t, c.inner)} {
			// Padding of a short frame is nobody's, and the reserved bits are the group policy extension's.
			b = append(framed(t, 77, c.own, mac(2), b), 0, 0, 0)
			b[0], b[2] = b[0]|0x80, 9
			c.wire.Inject(tunneltest.Datagram{Outer: netip.AddrPortFrom(addr(c.from), 40000),
				ECN: encap.NotECT, Data: b})
			if d, ok := n.host.Next(within); !ok || !bytes.Equal(d.Data, c.inner) {
				t.Errorf("from %s, %s: %x, want %x", c.from, name, d.Data, c.inner)
			}
		}
	}
	s := settled(t, n, 6)
	balanced(t, s)
	if s.Ingress.ReceivedBytes != s.Ingress.DeliveredBytes || s.Completed != 2 {
		t.Errorf("%d bytes received, %d delivered, %d completed", s.Ingress.ReceivedBytes, s.Ingress.DeliveredBytes,
			s.Completed)
	}
}

// What is larger than a peer takes is cut up, each piece with headers of its own; the ECN field
// goes out to every node, since every kernel brings it back in.
func TestVXLANFragmentsAndECN(t *testing.T) {
	n := start(t, vxlanSpec(), tunnel.Config{Format: encap.FormatVXLAN})
	whole := udp4(t, "10.1.1.5", "10.1.4.7", 1400, func(ip *layers.IPv4) { ip.Flags, ip.TOS = 0, 2 })
	n.host.Inject(tunneltest.Datagram{Data: whole})
	for got := 20; got < len(whole); {
		d, ok := n.wire.Next(within)
		if !ok {
			t.Fatal("a fragment is missing")
		}
		h, inner, err := encap.ParseVXLAN(d.Data)
		if err != nil || h.VNI != 77 || h.Dst != mac(4) || h.Type != encap.EtherTypeIPv4 || len(inner) > 1300 ||
			d.ECN != encap.ECT0 {
			t.Errorf("%+v, %d bytes, ECN %v, %v", h, len(inner), d.ECN, err)
		}
		got += len(inner) - 20
	}
	if s := settled(t, n, 1); s.Fragmented != 1 || s.Egress.Delivered != 1 {
		t.Errorf("fragmented %d and delivered %d, want 1 and 1", s.Fragmented, s.Egress.Delivered)
	}
	n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.1.5", "10.1.3.7", 1, func(ip *layers.IPv4) {
		ip.TOS = 1
	})})
	if d, ok := n.wire.Next(within); !ok || d.ECN != encap.ECT1 {
		t.Errorf("to a node without our key: ECN %v", d.ECN)
	}
	// 1450 bytes are what 1500 leave for the others.
	n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.1.5", "10.1.2.7", 1450-28, nil)})
	if d, ok := n.wire.Next(within); !ok || len(d.Data) != 1450+encap.VXLANOverhead {
		t.Errorf("a full-size packet leaves as %d bytes", len(d.Data))
	}
	n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.1.5", "10.1.2.7", 1451-28, nil)})
	if d, ok := n.host.Next(within); !ok || len(d.Data) < 28 || d.Data[20] != 3 || d.Data[21] != 4 ||
		d.Data[26] != 1450>>8 || d.Data[27] != 1450&0xff {
		t.Errorf("one byte more is answered by %x", d.Data)
	}
}

func TestVXLANDrops(t *testing.T) {
	n := start(t, vxlanSpec(), tunnel.Config{Format: encap.FormatVXLAN, Workers: 1})
	good := udp4(t, "10.1.2.7", "10.1.1.5", 9, nil)
	frame := func(vni uint32, dst encap.MAC, inner []byte) []byte { return framed(t, vni, dst, mac(2), inner) }
	set := func(b []byte, i int, v byte) []byte { b[i] = v; return b }
	total := uint64(0)
	for name, c := range map[string]struct {
		data   []byte
		reason port.DropReason
	}{
		"nothing":            {nil, port.DropMalformed},
		"a bare packet":      {good, port.DropMalformed},
		"headers alone":      {frame(77, mac(1), good)[:22], port.DropMalformed},
		"cut in the headers": {frame(77, mac(1), good)[:21], port.DropMalformed},
		"no I flag":          {set(frame(77, mac(1), good), 0, 0), port.DropMalformed},
		"a VLAN tag":         {set(set(frame(77, mac(1), good), 20, 0x81), 21, 0), port.DropMalformed},
		"ARP":                {set(frame(77, mac(1), good), 21, 6), port.DropMalformed},
		"IPv6 in an IPv4 frame": {set(set(frame(77, mac(1), udp6(t, "fd00:1:2::7", "fd00:1:1::5", 9)), 20, 8), 21,
			0), port.DropMalformed},
		"cut in the packet":  {frame(77, mac(1), good)[:40], port.DropMalformed},
		"another network":    {frame(78, mac(1), good), port.DropForeignVNI},
		"another node's":     {frame(77, mac(3), good), port.DropForeignMAC},
		"the other family's": {frame(77, mac(0x61), good), port.DropForeignMAC},
		"broadcast": {frame(77, encap.MAC{255, 255, 255, 255, 255, 255}, good),
			port.DropForeignMAC},
		"source is another's": {frame(77, mac(1), udp4(t, "10.1.3.7", "10.1.1.5", 9, nil)),
			port.DropForeignSource},
		"IPv6 by the IPv4 half": {frame(77, mac(1), udp6(t, "fd00:1:2::7", "fd00:1:1::5", 9)),
			port.DropForeignSource},
		"destination is not ours": {frame(77, mac(1), udp4(t, "10.1.2.7", "8.8.8.8", 9, nil)),
			port.DropForeignDest},
	} {
		before := n.Stats().Ingress.Drops[c.reason]
		n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: c.data})
		total++
		if got := settled(t, n, total).Ingress.Drops; got[c.reason] != before+1 {
			t.Errorf("%s: not counted as %v: %v", name, c.reason, got)
		}
	}
	balanced(t, n.Stats())
	if d, ok := n.host.Next(0); ok {
		t.Errorf("delivered: %x", d.Data)
	}
}

func TestVXLANTable(t *testing.T) {
	for name, edit := range map[string]func(*tunnel.Spec){
		"no MAC":            func(s *tunnel.Spec) { s.Peers[0].MAC = encap.MAC{} },
		"a group's":         func(s *tunnel.Spec) { s.Peers[0].MAC[0] = 1 },
		"none of our own":   func(s *tunnel.Spec) { s.MAC4 = encap.MAC{} },
		"VNI of 25 bits":    func(s *tunnel.Spec) { s.VNI = 1 << 24 },
		"none for IPv6 own": func(s *tunnel.Spec) { s.MAC6 = encap.MAC{} },
	} {
		s := vxlanSpec()
		edit(&s)
		if _, err := tunnel.NewTable(encap.FormatVXLAN, s); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
