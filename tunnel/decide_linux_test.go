package tunnel

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gaissmai/bart"

	"weft/encap"
	"weft/tunnel/natflow"
	"weft/tunnel/port"
)

// deciding is a decider without an engine, of node A with the pods 10.1.1.5 and fd00:1:1::5, and 10.1.1.6 and
// fd00:1:1::6. Its ports cannot read or write: a decision that did I/O would panic.
type deciding struct {
	decider
	host, under, pod, other *attachedPort
}

func newDeciding(t *testing.T) *deciding {
	t.Helper()
	return decidingBy(t, testSpec())
}

func decidingBy(t *testing.T, s Spec) *deciding {
	t.Helper()
	table, err := NewTable(encap.FormatIP, s)
	if err != nil {
		t.Fatal(err)
	}
	d := &deciding{
		host: &attachedPort{role: RoleHost}, under: &attachedPort{role: RoleUnderlay, lanes: 1, readers: 1},
		pod: &attachedPort{role: RolePod, pod: new(pod)}, other: &attachedPort{role: RolePod, pod: new(pod)},
	}
	d.other.pod.mtu.Store(1400)
	set := &portSet{host: d.host, under4: d.under, pods: new(bart.Table[*attachedPort])}
	for at, addrs := range map[*attachedPort][]string{d.pod: {"10.1.1.5", "fd00:1:1::5"},
		d.other: {"10.1.1.6", "fd00:1:1::6"}} {
		for _, a := range addrs {
			at.addrs = append(at.addrs, addr(a))
			set.pods.Insert(host(addr(a)), at)
		}
	}
	d.decider = decider{flows: natflow.New(), port: 8285,
		batch: batch{table: table, set: set, now: 1}}
	return d
}

// name is how the tests below call a port.
func (d *deciding) name(a *attachedPort) string {
	switch a {
	case nil:
		return ""
	case d.host:
		return "host"
	case d.under:
		return "under"
	case d.pod:
		return "pod"
	case d.other:
		return "other"
	}
	return "unknown"
}

func (d *deciding) peer(outer string) *Peer { return d.table.senders[addr(outer)] }

func packetOf(b []byte) *port.Packet {
	p := port.NewRing().Slot()
	p.SetLen(copy(p.Space(), b))
	return p
}

// with is b with v at i, and with the checksum of its IPv4 header.
func with(b []byte, i int, v ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[i:], v)
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	return b
}

// between is a packet of either family.
func between(src, dst string) []byte {
	if addr(dst).Is4() {
		return ipv4Packet(src, dst, 60)
	}
	return ipv6Packet(src, dst, 60)
}

// outcome is a decision in the words of a table.
type outcome struct {
	to, peer    string
	drop        port.DropReason // if dropped
	dropped     bool
	icmp        encap.ICMPKind
	limit, rest int
}

func without(r port.DropReason) outcome { return outcome{dropped: true, drop: r} }

func isTold(to string, r port.DropReason, k encap.ICMPKind) outcome {
	return outcome{to: to, dropped: true, drop: r, icmp: k}
}

func tooBig(to, peer string, mtu int) outcome {
	return outcome{to: to, peer: peer, dropped: true, drop: port.DropTooBig, icmp: encap.ICMPTooBig, limit: mtu}
}

func (d *deciding) check(t *testing.T, got decision, rest int, want outcome) {
	t.Helper()
	is := outcome{to: d.name(got.to), icmp: got.drop.icmp, limit: got.limit, rest: rest}
	if got.dropped() {
		is.dropped, is.drop = true, got.reason()
	}
	if got.peer != nil {
		is.peer = got.peer.spec.Name
	}
	if is != want {
		t.Errorf("decided %+v (drop: %v)\nwant    %+v (drop: %v)", is, is.drop, want, want.drop)
	}
}

// TestDecideOut has a row for each end of decideOut.
func TestDecideOut(t *testing.T) {
	const own, near = "10.1.1.5", "10.1.1.6"
	open := func(b []byte) []byte { return with(b, 6, 0, 0) } // without DF
	echo := with(ipv4Packet("10.1.1.1", own, 60), 9, encap.ProtoICMP)
	six := func(dst string, size int) []byte { return ipv6Packet("fd00:1:1::5", dst, size) }
	hops := func(b []byte, n byte) []byte { b[7] = n; return b }
	icmp6 := func(kind byte) []byte {
		b := ipv6Packet("fd00:1:1::", "fd00:1:1::5", 60)
		b[6], b[40] = encap.ProtoICMPv6, kind
		return b
	}
	tests := map[string]struct {
		from   string // host if empty
		packet []byte
		mss    int // of a superpacket
		change func(d *deciding)
		want   outcome
		after  func(p *port.Packet) bool // what p must be then
	}{
		"host to a peer": {packet: ipv4Packet(own, "10.1.2.7", 100),
			want: outcome{to: "under", peer: "b"}},
		"host to a pod": {packet: ipv4Packet("198.51.100.1", own, 100), want: outcome{to: "pod"}},
		"host to nobody": {packet: ipv4Packet(own, "10.9.9.9", 100),
			want: isTold("", port.DropNoRoute, encap.ICMPNoRoute)},
		"IPv6 to a peer": {packet: six("fd00:1:2::7", 60), want: outcome{to: "under", peer: "b"}},
		"IPv6 of 1280 bytes, below a claim": {packet: six("fd00:1:2::7", 1280),
			change: func(d *deciding) { d.peer("192.0.2.2").state.path.Learn(addr("192.0.2.2"), 600, 1500, 1) },
			want:   outcome{to: "under", peer: "b"}},
		"IPv6 of 1281 bytes, below a claim": {packet: six("fd00:1:2::7", 1281),
			change: func(d *deciding) { d.peer("192.0.2.2").state.path.Learn(addr("192.0.2.2"), 600, 1500, 1) },
			want:   tooBig("under", "b", 1280)},
		"no packet":             {packet: []byte{0x45}, want: without(port.DropMalformed)},
		"to itself":             {packet: ipv4Packet(own, own, 100), want: without(port.DropMartian)},
		"loopback":              {packet: ipv4Packet(own, "127.0.0.1", 100), want: without(port.DropMartian)},
		"a link's, by the host": {packet: ipv4Packet(own, "169.254.1.1", 100), want: without(port.DropMartian)},
		"multicast":             {packet: ipv4Packet(own, "224.0.0.251", 100), want: without(port.DropMulticast)},
		"broadcast": {packet: ipv4Packet(own, "255.255.255.255", 100),
			want: without(port.DropMulticast)},
		"a peer's source, out": {packet: ipv4Packet("10.1.3.7", "10.1.2.7", 100),
			want: outcome{dropped: true, drop: port.DropForeignSource, peer: "flannel"}},
		"a peer's source, back": {packet: ipv4Packet("10.1.3.7", "10.1.1.99", 100),
			want: isTold("", port.DropNoRoute, encap.ICMPNoRoute)},
		"a peer's source, in": {packet: ipv4Packet("10.1.3.7", own, 100), want: outcome{to: "pod"}},
		"a redirect to a pod": {packet: with(echo, 20, 5),
			want: outcome{to: "pod", dropped: true, drop: port.DropUnsupported}},
		"an echo to a pod": {packet: with(echo, 20, 8), want: outcome{to: "pod"}},
		"IPv6, a redirect to a pod": {packet: icmp6(137),
			want: outcome{to: "pod", dropped: true, drop: port.DropUnsupported}},
		"IPv6, an echo reply to a pod": {packet: icmp6(129), want: outcome{to: "pod"}},
		"IPv6, type 5 to a pod":        {packet: icmp6(5), want: outcome{to: "pod"}},
		"no underlay": {packet: ipv4Packet(own, "10.1.2.7", 100),
			change: func(d *deciding) { d.set.under4 = nil },
			want:   without(port.DropUnderlay)},
		"an unanswering hop": {packet: ipv4Packet(own, "10.1.2.7", 100),
			change: func(d *deciding) { d.peer("192.0.2.2").state.reach.blocked.Store(9) },
			want:   without(port.DropUnderlay)},
		"IPv6 to a peer without": {packet: six("fd00:1:4::7", 60),
			change: func(d *deciding) { d.peer("192.0.2.4").inner6 = false },
			want:   isTold("", port.DropUnsupported, encap.ICMPNoRoute)},
		"too large": {packet: ipv4Packet(own, "10.1.4.7", 1400),
			want: tooBig("under", "small", 1300)},
		"too large, no DF": {packet: open(ipv4Packet(own, "10.1.4.7", 1400)),
			want: outcome{to: "under", peer: "small", limit: 1300}},
		"too large TCP": {packet: tcpTo("10.1.4.7", 14000, true), mss: 1400,
			want: tooBig("under", "small", 1300)},
		"too large TCP, no DF": {packet: tcpTo("10.1.4.7", 14000, false), mss: 1400,
			want:  outcome{to: "under", peer: "small"},
			after: func(p *port.Packet) bool { return p.SegSize == 1300-40 && p.Segments == 12 }},
		"too large UDP, no DF": {packet: open(ipv4Packet(own, "10.1.4.7", 28+14000)), mss: 1400,
			want:  outcome{to: "under", peer: "small", limit: 1300},
			after: func(p *port.Packet) bool { return p.SegSize == 1400 && p.Segments == 10 }},
		"segments of one byte": {packet: tcpTo("10.1.2.7", 14000, false), mss: 1, want: without(port.DropSegments)},
		"as many segments as may be": {packet: tcpTo("10.1.2.7", port.MaxSegments, false), mss: 1,
			want: outcome{to: "under", peer: "b"}},
		"a segment more": {packet: tcpTo("10.1.2.7", port.MaxSegments+1, false), mss: 1,
			want: without(port.DropSegments)},

		"pod to a pod": {from: "pod", packet: ipv4Packet(own, near, 100), want: outcome{to: "other"},
			after: func(p *port.Packet) bool { return p.Bytes()[8] == 63 }},
		"pod to a peer": {from: "pod", packet: ipv4Packet(own, "10.1.2.7", 100),
			want:  outcome{to: "under", peer: "b"},
			after: func(p *port.Packet) bool { return p.Bytes()[8] == 63 }},
		"pod to the router": {from: "pod", packet: ipv4Packet(own, "10.1.1.0", 100),
			want:  outcome{to: "host"},
			after: func(p *port.Packet) bool { return p.Bytes()[8] == 64 }},
		"pod to elsewhere": {from: "pod", packet: ipv4Packet(own, "198.51.100.1", 100),
			want: outcome{to: "host"}},
		"pod to a link's": {from: "pod", packet: ipv4Packet(own, "169.254.169.254", 100),
			want: outcome{to: "host"}},
		"pod, multicast": {from: "pod", packet: ipv4Packet(own, "224.0.0.251", 100),
			want: without(port.DropMulticast)},
		"pod, another's source": {from: "pod", packet: ipv4Packet(near, "10.1.2.7", 100),
			want: without(port.DropForeignSource)},
		"pod, last hop": {from: "pod", packet: with(ipv4Packet(own, "10.1.2.7", 100), 8, 1),
			want: isTold("", port.DropTTL, encap.ICMPTimeExceeded)},
		"pod, TTL 0": {from: "pod", packet: with(ipv4Packet(own, "10.1.2.7", 100), 8, 0),
			want: isTold("", port.DropTTL, encap.ICMPTimeExceeded)},
		"pod, IPv6, last hop": {from: "pod", packet: hops(six("fd00:1:2::7", 60), 1),
			want: isTold("", port.DropTTL, encap.ICMPTimeExceeded)},
		"pod, last hop, to the router": {from: "pod", packet: with(ipv4Packet(own, "10.1.1.0", 100), 8, 1),
			want: outcome{to: "host"}},
		"pod, IPv6, last hop, to the router": {from: "pod", packet: hops(six("fd00:1:1::", 60), 1),
			want: outcome{to: "host"}},
		"pod, last hop, to a group": {from: "pod", packet: with(ipv4Packet(own, "239.1.1.1", 100), 8, 1),
			want: without(port.DropMulticast)},
		"pod, a superpacket": {from: "pod", packet: tcpTo(near, 14000, true), mss: 1360,
			want:  outcome{to: "other"},
			after: func(p *port.Packet) bool { return p.SegSize == 1360 && p.Bytes()[8] == 63 }},
		"pod, too large TCP": {from: "pod", packet: tcpTo(near, 14000, true), mss: 1400,
			want: tooBig("other", "", 1400)},
		"pod, too large TCP, no DF": {from: "pod", packet: tcpTo(near, 14000, false), mss: 1400,
			want:  outcome{to: "other"},
			after: func(p *port.Packet) bool { return p.SegSize == 1400-40 && p.Partial }},
		"pod, too large": {from: "pod", packet: ipv4Packet(own, near, 1472),
			want: tooBig("other", "", 1400)},
		"pod, too large, no DF": {from: "pod", packet: open(ipv4Packet(own, near, 1472)),
			want: outcome{to: "other", limit: 1400}},
		"pod to one that left": {from: "pod", packet: ipv4Packet(own, near, 100),
			change: func(d *deciding) { d.other.lost.Store(true) },
			want:   isTold("other", port.DropClosed, encap.ICMPNoRoute)},
		"pod answers by the host": {from: "pod", packet: ipv4Packet(own, near, 100),
			change: func(d *deciding) {
				d.from = d.host // which hands back what the other had sent to a Service
				d.decideOut(packetOf(ipv4Packet(near, own, 100)))
				d.from, d.source, d.dest = d.pod, source{}, dest{}
			}, want: outcome{to: "host"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDeciding(t)
			if d.from = d.host; tt.from == "pod" {
				d.from = d.pod
			}
			if tt.change != nil {
				tt.change(d)
			}
			p := packetOf(tt.packet)
			if tt.mss > 0 {
				p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = tt.mss, true, 20, encap.ChecksumOffsetTCP
			}
			d.check(t, d.decideOut(p), 0, tt.want)
			if tt.after != nil && !tt.after(p) {
				t.Errorf("the packet is % x after it, in %d segments of %d",
					p.Bytes()[:min(40, len(p.Bytes()))], p.Segments, p.SegSize)
			}
		})
	}
}

// TestDecideIn has a row for each end of decideIn.
func TestDecideIn(t *testing.T) {
	good := ipv4Packet("10.1.2.7", "10.1.1.9", 100)
	nested := ipv4Packet("10.1.2.7", "10.1.1.0", 100)
	binary.BigEndian.PutUint16(nested[22:], 8285)
	redirect := with(ipv4Packet("10.1.2.7", "10.1.1.5", 100), 9, encap.ProtoICMP)
	tcpFrom := func(payload int) []byte { return with(tcp4(payload), 12, 10, 1, 2, 7, 10, 1, 1, 5) }
	segmented := func(_ *deciding, p *port.Packet) {
		p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = 1, true, 20, encap.ChecksumOffsetTCP
	}
	tests := map[string]struct {
		outer  string // b's if empty
		packet []byte
		ecn    encap.ECN
		change func(d *deciding, p *port.Packet)
		want   outcome
		after  func(p *port.Packet) bool
	}{
		"to the host": {packet: good, want: outcome{to: "host"}},
		"to a pod": {packet: ipv4Packet("10.1.2.7", "10.1.1.5", 100),
			want:  outcome{to: "pod"},
			after: func(p *port.Packet) bool { return p.Bytes()[8] == 64 }},
		"a further source": {outer: "192.0.2.44", packet: ipv4Packet("10.1.4.7", "10.1.1.9", 100),
			want: outcome{to: "host", peer: "small"}},
		"no datagram": {packet: good,
			change: func(_ *deciding, p *port.Packet) { p.Outer = netip.AddrPort{} },
			want:   without(port.DropMalformed)},
		"no packet": {packet: []byte{0x45}, want: without(port.DropMalformed)},
		"truncated": {packet: good,
			change: func(_ *deciding, p *port.Packet) { p.Truncated = true },
			want:   without(port.DropTruncated)},
		"a stranger": {outer: "203.0.113.9", packet: good, want: without(port.DropUnknownPeer)},
		"ourselves":  {outer: "192.0.2.1", packet: good, want: without(port.DropOwnSource)},
		"congestion": {packet: with(good, 1, 2), ecn: encap.CE,
			want:  outcome{to: "host"},
			after: func(p *port.Packet) bool { return p.Bytes()[1] == 3 }},
		"congestion, no ECN": {packet: good, ecn: encap.CE, want: without(port.DropECN)},
		"no hop left":        {packet: with(good, 8, 0), want: without(port.DropTTL)},
		"a martian":          {packet: ipv4Packet("127.0.0.1", "10.1.1.9", 100), want: without(port.DropMartian)},
		"another's source": {packet: ipv4Packet("10.1.3.7", "10.1.1.9", 100),
			want: without(port.DropForeignSource)},
		"our source": {packet: ipv4Packet("10.1.1.6", "10.1.1.9", 100),
			want: without(port.DropForeignSource)},
		"another's":        {packet: ipv4Packet("10.1.2.7", "10.1.3.5", 100), want: without(port.DropForeignDest)},
		"tunnel in tunnel": {packet: nested, want: without(port.DropNested)},
		"tunnel in tunnel, after another": {packet: nested,
			change: func(d *deciding, _ *port.Packet) { // of the same addresses, and what it passed is not remembered
				p := packetOf(ipv4Packet("10.1.2.7", "10.1.1.0", 100))
				p.Outer = netip.AddrPortFrom(addr("192.0.2.2"), 8285)
				d.decideIn(p)
			},
			want: without(port.DropNested)},
		"as many segments as may be": {packet: tcpFrom(port.MaxSegments), change: segmented,
			want: outcome{to: "pod"}},
		"a segment more": {packet: tcpFrom(port.MaxSegments + 1), change: segmented,
			want: without(port.DropSegments)},
		"no host port": {packet: good,
			change: func(d *deciding, _ *port.Packet) { d.set.host = nil },
			want:   without(port.DropClosed)},
		"redirect to a pod": {packet: with(redirect, 20, 5),
			want: outcome{to: "pod", dropped: true, drop: port.DropUnsupported}},
		"too large for a pod": {packet: ipv4Packet("10.1.2.7", "10.1.1.6", 1472),
			want: tooBig("other", "", 1400)},
		"fragments for a pod": {packet: with(ipv4Packet("10.1.2.7", "10.1.1.6", 1472), 6, 0, 0),
			want: outcome{to: "other", limit: 1400}},
		"two in a datagram": {packet: append(bytes.Clone(good), good...),
			change: func(d *deciding, _ *port.Packet) { d.peer("192.0.2.2").packs = true },
			want:   outcome{to: "host", rest: 100},
			after:  func(p *port.Packet) bool { return len(p.Bytes()) == 100 }},
		"two, of one who packs none": {packet: append(bytes.Clone(good), good...),
			change: func(d *deciding, _ *port.Packet) { d.peer("192.0.2.2").packs = false },
			want:   outcome{to: "host"},
			after:  func(p *port.Packet) bool { return len(p.Bytes()) == 100 }},
		"a pod answers by the host": {packet: ipv4Packet("10.1.2.7", "10.1.1.5", 100),
			change: func(d *deciding, _ *port.Packet) {
				d.from = d.host
				d.decideOut(packetOf(ipv4Packet("10.1.1.5", "10.1.2.7", 100)))
				d.from = d.under
			}, want: outcome{to: "host"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDeciding(t)
			d.from = d.under
			p := packetOf(tt.packet)
			if tt.outer == "" {
				tt.outer, tt.want.peer = "192.0.2.2", "b"
			}
			p.Outer, p.OuterECN = netip.AddrPortFrom(addr(tt.outer), 8285), tt.ecn
			if tt.change != nil {
				tt.change(d, p)
			}
			if !p.Outer.IsValid() {
				tt.want.peer = ""
			}
			got, rest := d.decideIn(p)
			d.check(t, got, rest, tt.want)
			if tt.after != nil && !tt.after(p) {
				t.Errorf("the packet is % x after it, in %d segments of %d",
					p.Bytes()[:min(40, len(p.Bytes()))], p.Segments, p.SegSize)
			}
		})
	}
}

// TestAddresses has packets between addresses that are anybody's, read from each kind of port: where they go,
// or why they are dropped.
func TestAddresses(t *testing.T) {
	const none = port.NumDropReasons
	for _, tt := range []struct {
		from, src, dst, to string
		drop               port.DropReason
	}{
		{"pod", "10.1.1.5", "10.1.1.6", "other", none},
		{"pod", "fd00:1:1::5", "fd00:1:1::6", "other", none},
		{"pod", "10.1.1.5", "192.0.2.1", "host", none},      // the node
		{"pod", "10.1.1.5", "10.1.1.77", "host", none},      // a bridge's pod
		{"pod", "10.1.1.5", "169.254.20.10", "host", none},  // the node's DNS cache
		{"host", "169.254.20.10", "10.1.1.5", "pod", none},  // and its answer
		{"pod", "fd00:1:1::5", "2001:db8::1", "host", none}, // anywhere
		{"pod", "fd00:1:1::5", "fe80::1", "", port.DropMartian},
		{"host", "fd00:1:1::5", "fe80::7", "", port.DropMartian},
		{"pod", "10.1.1.5", "127.0.0.1", "", port.DropMartian},
		{"pod", "fd00:1:1::5", "::1", "", port.DropMartian},
		{"pod", "10.1.1.5", "0.0.0.0", "", port.DropMartian},
		{"pod", "10.1.1.5", "10.1.1.5", "", port.DropMartian},
		{"pod", "10.1.1.5", "224.0.0.251", "", port.DropMulticast},
		{"pod", "10.1.1.5", "255.255.255.255", "", port.DropMulticast},
		{"pod", "fe80::5", "ff02::2", "", port.DropMulticast}, // what a kernel says to its link
		{"host", "fe80::5", "ff02::2", "", port.DropMulticast},
		{"pod", "10.1.1.6", "10.1.2.7", "", port.DropForeignSource}, // another pod's, and so on
		{"pod", "10.1.1.6", "10.1.1.5", "", port.DropForeignSource},
		{"pod", "fd00:1:1::6", "fd00:1:2::7", "", port.DropForeignSource},
		{"pod", "10.1.2.7", "10.1.1.6", "", port.DropForeignSource},
		{"pod", "10.1.2.7", "10.1.2.8", "", port.DropForeignSource},
		{"pod", "10.1.1.0", "10.1.1.6", "", port.DropForeignSource},
		{"pod", "192.0.2.1", "10.1.2.7", "", port.DropForeignSource},
		{"pod", "192.0.2.2", "10.1.1.6", "", port.DropForeignSource},
		{"pod", "198.51.100.1", "10.1.2.7", "", port.DropForeignSource},
		{"pod", "127.0.0.1", "10.1.1.6", "", port.DropForeignSource},
		{"pod", "0.0.0.0", "10.1.2.7", "", port.DropForeignSource},
		{"pod", "fe80::5", "fd00:1:2::7", "", port.DropForeignSource},
		{"pod", "::ffff:10.1.1.5", "fd00:1:2::7", "", port.DropForeignSource},

		{"under", "192.0.2.2", "10.1.1.9", "host", none}, // the peer itself
		{"under", "0.0.0.0", "10.1.1.5", "", port.DropMartian},
		{"under", "224.0.0.1", "10.1.1.5", "", port.DropMartian},
		{"under", "255.255.255.255", "10.1.1.5", "", port.DropMartian},
		{"under", "169.254.1.1", "10.1.1.5", "", port.DropMartian},
		{"under", "fe80::1", "fd00:1:1::5", "", port.DropMartian},
		{"under", "::1", "fd00:1:1::5", "", port.DropMartian},
		{"under", "fd00:1:2::7", "ff02::1", "", port.DropMartian},
		{"under", "10.1.2.7", "127.0.0.1", "", port.DropMartian},
		{"under", "10.1.2.7", "224.0.0.251", "", port.DropMartian},
		{"under", "10.1.2.7", "10.1.2.7", "", port.DropMartian},
		{"under", "8.8.8.8", "10.1.1.5", "", port.DropForeignSource},
		{"under", "fd00:1:3::7", "fd00:1:1::5", "", port.DropForeignSource},
		{"under", "10.1.2.7", "8.8.8.8", "", port.DropForeignDest},
		{"under", "10.1.2.7", "192.0.2.1", "", port.DropForeignDest}, // the underlay as a way around
	} {
		d := newDeciding(t)
		d.from = map[string]*attachedPort{"pod": d.pod, "host": d.host, "under": d.under}[tt.from]
		p := packetOf(between(tt.src, tt.dst))
		var got decision
		if d.from == d.under {
			p.Outer = netip.AddrPortFrom(addr("192.0.2.2"), 8285)
			got, _ = d.decideIn(p)
		} else {
			got = d.decideOut(p)
		}
		if to := d.name(got.to); to != tt.to || got.dropped() != (tt.drop != none) ||
			got.dropped() && (got.reason() != tt.drop || got.drop.icmp != 0) {
			t.Errorf("%s, %s to %s: to %q, %+v, want %q, %v", tt.from, tt.src, tt.dst, to, got.drop, tt.to,
				tt.drop)
		}
	}
}

// TestSourceCheck opens the checks one by one: who may send here, and which of the host's packets may leave.
func TestSourceCheck(t *testing.T) {
	const b, stranger = "192.0.2.2", "203.0.113.9"
	for _, tt := range []struct {
		outer, src, dst string // of a datagram, or of a packet of this host's
		// passes are the checks with which it does; allowed is strict, with 8.8.8.0/24 and 10.1.3.0/24 as allowed
		// sources.
		passes string
	}{
		{stranger, "10.1.2.7", "10.1.1.9", "off"},
		{b, "8.8.8.8", "10.1.1.9", "allowed outer off"},
		{b, "10.1.1.6", "10.1.1.9", "off"},
		{b, "10.1.2.7", "10.1.3.5", ""}, // transit
		{b, "10.1.2.7", "10.1.1.9", "strict allowed outer off"},
		{"", "10.1.1.5", "10.1.2.7", "strict allowed outer off"},   // a pod of ours
		{"", "10.1.1.0", "10.1.2.7", "strict allowed outer off"},   // the overlay's own address
		{"", "192.0.2.1", "10.1.2.7", "strict allowed outer off"},  // this host's
		{"", "172.16.0.9", "10.1.2.7", "strict allowed outer off"}, // a network's behind this host
		{"", "10.1.9.7", "10.1.2.7", "strict allowed outer off"},   // a subnet's that nobody has
		{"", "10.1.3.7", "10.1.2.7", "allowed outer off"},          // another node's
		{"", "10.1.2.8", "10.1.2.7", "outer off"},                  // the receiver's own
	} {
		for name, check := range map[string]SourceCheck{"strict": CheckStrict, "allowed": CheckStrict,
			"outer": CheckOuter, "off": CheckOff} {
			s := testSpec()
			if s.Check = check; name == "allowed" {
				s.AllowedSources = prefixes("8.8.8.0/24", "10.1.3.0/24")
			}
			d := decidingBy(t, s)
			p := packetOf(between(tt.src, tt.dst))
			var got decision
			if d.from = d.host; tt.outer == "" {
				got = d.decideOut(p)
			} else {
				d.from, p.Outer = d.under, netip.AddrPortFrom(addr(tt.outer), 8285)
				got, _ = d.decideIn(p)
			}
			if got.dropped() == slices.Contains(strings.Fields(tt.passes), name) {
				t.Errorf("%s: from %q, %s to %s: dropped %v, %+v", name, tt.outer, tt.src, tt.dst, got.dropped(),
					got.drop)
			}
		}
	}
}
