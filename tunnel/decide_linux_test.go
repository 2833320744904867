package tunnel

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gaissmai/bart"

	"weft/encap"
	"weft/tunnel/natflow"
	"weft/tunnel/port"
)

// deciding is a decider without an engine, of node A with the pods 10.1.1.5 and 10.1.1.6. Its ports cannot
// read or write: a decision that did I/O would panic.
type deciding struct {
	decider
	host, under, pod, other *attached
}

func newDeciding(t *testing.T) *deciding {
	t.Helper()
	table, err := NewTable(encap.FormatIP, testSpec())
	if err != nil {
		t.Fatal(err)
	}
	d := &deciding{
		host: &attached{role: RoleHost}, under: &attached{role: RoleUnderlay, lanes: 1, readers: 1},
		pod: &attached{role: RolePod, pod: new(pod)}, other: &attached{role: RolePod, pod: new(pod)},
	}
	d.other.pod.mtu.Store(1400)
	set := &portSet{host: d.host, under4: d.under, pods: new(bart.Table[*attached])}
	for a, at := range map[string]*attached{"10.1.1.5": d.pod, "10.1.1.6": d.other} {
		at.addrs = []netip.Addr{addr(a)}
		set.pods.Insert(host(addr(a)), at)
	}
	d.decider = decider{flows: natflow.New(), port: 8285,
		batch: batch{table: table, set: set, now: 1}}
	return d
}

// name is how the tests below call a port.
func (d *deciding) name(a *attached) string {
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
	six := func(dst string, size int) []byte {
		b := make([]byte, size)
		src, to := addr("fd00:1:1::5").As16(), addr(dst).As16()
		b[0], b[6], b[7] = 0x60, 17, 64
		binary.BigEndian.PutUint16(b[4:], uint16(size-40))
		copy(b[8:], src[:])
		copy(b[24:], to[:])
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
