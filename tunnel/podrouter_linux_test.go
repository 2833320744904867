package tunnel_test

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// TestRouterForPods has what RFC 1812 asks of a router with a pod's packets whose TTL ends, or that have no
// way: where each goes, what its sender is told, by ICMP from the router's own address, and about which
// packets nobody may be told anything (section 4.3.2.7).
func TestRouterForPods(t *testing.T) {
	ttl := func(n uint8) func(*layers.IPv4) { return func(ip *layers.IPv4) { ip.TTL = n } }
	sealed := func(b []byte, at int, v ...byte) []byte { // with the header's checksum
		copy(b[at:], v)
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:int(b[0]&15)*4]))
		return b
	}
	six := func(dst string, hops byte) []byte {
		b := udp6(t, "fd00:1:1::5", dst, 9)
		b[7] = hops
		return b
	}
	spoilt := udp4(t, "10.1.1.5", "10.1.2.7", 9, ttl(1))
	spoilt[11] ^= 1
	for name, tt := range map[string]struct {
		packet []byte
		to     string // "wire", "host" or "" for a drop
		icmp   string
	}{
		"TTL 2": {udp4(t, "10.1.1.5", "10.1.2.7", 9, ttl(2)), "wire", ""},
		"TTL 1": {udp4(t, "10.1.1.5", "10.1.2.7", 9, ttl(1)), "",
			"TimeExceeded(TTLExceeded)"},
		"TTL 0": {udp4(t, "10.1.1.5", "10.1.2.7", 9, ttl(0)), "",
			"TimeExceeded(TTLExceeded)"},
		"hop limit 2":                 {six("fd00:1:2::7", 2), "wire", ""},
		"hop limit 1":                 {six("fd00:1:2::7", 1), "", "TimeExceeded(HopLimitExceeded)"},
		"to the router itself, TTL 1": {udp4(t, "10.1.1.5", "10.1.1.0", 9, ttl(1)), "host", ""},
		"to the router, hop limit 1":  {six("fd00:1:1::", 1), "host", ""},
		"to a group, TTL 1":           {udp4(t, "10.1.1.5", "239.1.1.1", 9, ttl(1)), "", ""},
		"to all, TTL 1":               {udp4(t, "10.1.1.5", "255.255.255.255", 9, ttl(1)), "", ""},
		"an ICMP error":               {sealed(icmpError(t, "10.1.1.5", "10.1.2.7"), 8, 1), "", ""},
		"a later fragment":            {sealed(udp4(t, "10.1.1.5", "10.1.2.7", 9, ttl(1)), 6, 0, 9), "", ""},
		"a first fragment": {sealed(udp4(t, "10.1.1.5", "10.1.2.7", 12, ttl(1)), 6, 0x20, 0), "",
			"TimeExceeded(TTLExceeded)"},
		"wrong header checksum": {spoilt, "", ""},
		"options": {udp4(t, "10.1.1.5", "10.1.2.7", 9, func(ip *layers.IPv4) {
			ip.TTL, ip.Options = 1, []layers.IPv4Option{{OptionType: 1}}
		}), "", "TimeExceeded(TTLExceeded)"},
	} {
		n := start(t, spec(), tunnel.Config{Workers: 1})
		pod := memory(t, outer("0.0.0.0"))
		if _, err := n.Attach(pod, tunnel.RolePod, addr("10.1.1.5"), addr("fd00:1:1::5")); err != nil {
			t.Fatal(err)
		}
		pod.Inject(tunneltest.Datagram{Data: tt.packet})
		settled(t, n, 1)
		for at, p := range map[string]*tunneltest.Port{"wire": n.wire, "host": n.host} {
			if d, ok := p.Next(0); ok != (at == tt.to) {
				t.Errorf("%s: at the %s there is %x", name, at, d.Data)
			}
		}
		switch d, ok := pod.Next(0); {
		case ok != (tt.icmp != ""):
			t.Errorf("%s: the pod is told %x, want %q", name, d.Data, tt.icmp)
		case ok:
			if got := describeICMP(t, d.Data, tt.packet); got != tt.icmp {
				t.Errorf("%s: the pod is told %q, want %q", name, got, tt.icmp)
			}
		}
	}
}

// TestNoRedirectReachesAPod: the host's kernel tells pods of another first hop, when it routes what it has
// translated back into the TUN, and a pod has one way; what is no redirect passes.
func TestNoRedirectReachesAPod(t *testing.T) {
	icmp := func(kind byte, extra ...byte) []byte {
		b := udp4(t, "10.1.1.0", "10.1.1.5", 40, func(*layers.IPv4) {})
		b[9] = encap.ProtoICMP
		b[20] = kind
		copy(b[21:], extra)
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
		return b
	}
	icmp6 := func(kind byte) []byte {
		b := udp6(t, "fd00:1:1::", "fd00:1:1::5", 40)
		b[6], b[40] = encap.ProtoICMPv6, kind
		return b
	}
	for name, tt := range map[string]struct {
		packet []byte
		passes bool
	}{
		"redirect":            {icmp(5, 1), false},
		"redirect of IPv6":    {icmp6(137), false},
		"echo reply":          {icmp(0), true},
		"echo reply of IPv6":  {icmp6(129), true},
		"packet too big":      {icmp6(2), true},
		"5 of another family": {icmp6(5), true},
	} {
		n := start(t, spec(), tunnel.Config{Workers: 1})
		pod := memory(t, outer("0.0.0.0"))
		if _, err := n.Attach(pod, tunnel.RolePod, addr("10.1.1.5"), addr("fd00:1:1::5")); err != nil {
			t.Fatal(err)
		}
		n.host.Inject(tunneltest.Datagram{Data: tt.packet})
		settled(t, n, 1)
		if d, ok := pod.Next(0); ok != tt.passes {
			t.Errorf("%s: the pod has %x", name, d.Data)
		}
		want := uint64(1)
		if tt.passes {
			want = 0
		}
		if got := n.Stats().Egress.Drops[port.DropUnsupported]; got != want {
			t.Errorf("%s: %d are counted as dropped, want %d", name, got, want)
		}
	}
}
