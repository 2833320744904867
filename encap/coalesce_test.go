package encap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// stream makes n packets of one flow, as a sender with this segment size would: they
// are the segments of one superpacket.
func stream(six bool, proto uint8, size, n int) (pkts [][]byte) {
	pkt := transport(six, proto, size*n, false)
	if proto == ProtoTCP {
		l4, _ := slowL4(pkt)
		pkt[l4+13] = tcpACK
	}
	return slowSegment(slowFix(pkt, true), size, false)
}

func arrivals(pkts [][]byte, partial bool) (as []arrival) {
	for _, p := range pkts {
		p = slices.Clone(p)
		if partial {
			slowFix(p, true)
		}
		as = append(as, arrival{p, partial})
	}
	return as
}

// sameMerged compares packets and the descriptions of supers.
func sameMerged(t testing.TB, as []arrival, got []merged, hdrs []VNetHdr, want []merged) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.from != w.from || g.n != w.n || !bytes.Equal(g.pkt, w.pkt) {
			t.Fatalf("packets %d to %d leave as\n%.80x, want %d to %d as\n%.80x\nnext has %.80x", g.from,
				g.from+g.n, g.pkt,
				w.from, w.from+w.n, w.pkt, as[min(g.from+g.n, len(as)-1)].pkt)
		}
		if hdrs[i].GSOType != VNetGSONone {
			checkSuper(t, hdrs[i], g, as)
		} else if g.n != 1 {
			t.Fatalf("%d packets with %+v", g.n, hdrs[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d packets leave, want %d", len(got), len(want))
	}
}

// checkSuper cuts a merged packet as its header says; the result has to be what arrived.
func checkSuper(t testing.TB, h VNetHdr, g merged, as []arrival) {
	t.Helper()
	l4, proto := slowL4(g.pkt)
	offset := map[uint8]int{ProtoTCP: 16, ProtoUDP: 6}[proto]
	kind := uint8(VNetGSOUDPL4)
	if proto == ProtoTCP {
		kind = map[uint8]uint8{4: VNetGSOTCPv4, 6: VNetGSOTCPv6}[g.pkt[0]>>4]
	}
	want := VNetHdr{VNetNeedsCsum, kind, uint16(slowHeaderLen(g.pkt)),
		uint16(len(as[g.from].pkt) - slowHeaderLen(g.pkt)), uint16(l4), uint16(offset)}
	if h != want {
		t.Fatalf("header %+v, want %+v", h, want)
	}
	in, err := ParseInner(g.pkt)
	if err != nil || !headerChecksumOK(g.pkt) {
		t.Fatal(err, "or header checksum")
	}
	start, off, ok := PartialChecksum(g.pkt, in)
	if !ok || start != int(h.CsumStart) || off != int(h.CsumOffset) {
		t.Fatalf("superpacket is not partial as its header says: %d %d %t", start, off, ok)
	}
	segs := segments(t, g.pkt, int(h.GSOSize), false)
	fixed := in.Version == 4 && in.DF && bytes.Equal(as[g.from].pkt[4:6], as[g.from+1].pkt[4:6])
	for k, seg := range segs {
		if !slowSame(as[g.from+k], seg, fixed) {
			t.Fatalf("segment %d of %d is not what arrived:\n%.80x\n%.80x", k, len(segs), seg, as[g.from+k].pkt)
		}
	}
}

// change spoils or varies packet p. op says how, and v is the value for that.
func change(p []byte, op, v uint8) []byte {
	if op != 1 && !slowPlain(p) {
		return p // spoilt before
	}
	l4, proto := slowL4(p)
	refix := func() { slowFix(p, false) }
	word := func(at int) { binary.BigEndian.PutUint16(p[at:], binary.BigEndian.Uint16(p[at:])+uint16(v)) }
	four := p[0]>>4 == 4
	switch {
	case op == 1: // a bit, anywhere
		p[int(v)%len(p)] ^= 1 << (v % 8)
	case op == 2 && proto == ProtoTCP: // flags
		p[l4+13] ^= 1 << (v % 8)
		refix()
	case op == 3 && proto == ProtoTCP: // reserved bits, data offset left alone
		p[l4+12] ^= v & 15
		refix()
	case op == 4: // sequence number, or UDP length
		word(l4 + 4)
		slowFixSums(p)
	case op == 5 && proto == ProtoTCP: // acknowledgement, window, urgent pointer
		word(l4 + []int{8, 10, 14, 18}[v%4])
		refix()
	case op == 6 && len(p)-slowHeaderLen(p) > 0: // less payload
		p = p[:len(p)-int(v)%(len(p)-slowHeaderLen(p)+1)]
		refix()
	case op == 7: // more payload
		p = append(p, make([]byte, v)...)
		refix()
	case op == 8 && four: // identification
		word(4)
		refix()
	case op == 9 && four: // DF, evil bit, MF
		p[6] ^= 0x20 << (v % 3)
		refix()
	case op == 10: // TOS, TTL
		p[[]int{1, 8 - int(p[0]>>4)%4/2}[v%2]] ^= v | 1
		refix()
	case op == 11: // ports
		word(l4 + int(v%2)*2)
		refix()
	case op == 12: // addresses
		p[12+int(v)%8] ^= 1
		refix()
	case op == 13 && proto == ProtoTCP: // PSH
		p[l4+13] |= tcpPSH
		refix()
	case op == 14: // trailing garbage
		p = append(p, make([]byte, v%8)...)
	case op == 15 && proto == ProtoUDP: // no checksum
		p[l4+6], p[l4+7] = 0, 0
	}
	return p
}

// slowFixSums completes the checksums and leaves all lengths as they are.
func slowFixSums(p []byte) {
	l4, proto := slowL4(p)
	saved := slices.Clone(p[l4+4 : l4+6])
	slowFix(p, false)
	copy(p[l4+4:], saved)
	if proto == ProtoUDP {
		p[l4+6], p[l4+7] = 0, 0
		check := ^slowSum(p[l4:], uint64(slowSum(slowAddrs(p), uint64(proto)+uint64(len(p)-l4))))
		binary.BigEndian.PutUint16(p[l4+6:], check)
	}
}

// script makes a short flow and changes it. ops has three bytes for each change: which
// packet, op and v.
func script(seed uint64, ops []byte) (as []arrival) {
	r := rand.New(rand.NewPCG(seed, 1))
	six, size := r.IntN(2) == 0, 1+r.IntN(60)
	super := randomSuper(r, size*(1+r.IntN(12))+r.IntN(size))
	for ; super[0]>>4 == 6 != six || super[0]&15 != 5 &&
		!six; super = randomSuper(r, len(super)-slowHeaderLen(super)) {
	}
	l4, proto := slowL4(super)
	if proto == ProtoTCP {
		super[l4+13] = tcpACK | super[l4+13]&(tcpPSH|tcpECE)
	}
	pkts := slowSegment(super, size, false)
	if r.IntN(3) == 0 && !six { // identification fixed
		for _, p := range pkts {
			copy(p[4:6], super[4:6])
			slowFix(p, false)
		}
	}
	for ; len(ops) >= 3; ops = ops[3:] {
		k := int(ops[0]) % len(pkts)
		pkts[k] = change(pkts[k], ops[1]%16, ops[2])
	}
	for _, p := range pkts {
		a := arrival{p, false}
		if in, err := ParseInner(p); err == nil && ChecksumOK(p, in) && in.Proto == proto && r.IntN(3) == 0 {
			if l4, q := slowL4(p); l4 == in.L4 && q == proto && len(p) == in.TotalLen &&
				!bytes.Equal(p[l4+6:l4+8], []byte{0, 0}) {
				a = arrival{slowFix(p, true), true}
			}
		}
		as = append(as, a)
	}
	return as
}

func checkScript(t testing.TB, seed uint64, ops []byte) {
	as := script(seed, ops)
	for i, a := range as { // the reference knows no trailing bytes: a caller cuts them off
		if in, err := ParseInner(a.pkt); err == nil {
			as[i].pkt = a.pkt[:in.TotalLen]
		}
	}
	limit := 1 + int(seed%20)
	got, hdrs := runCoalesce(&Run{UDPSegments: limit}, as)
	sameMerged(t, as, got, hdrs, slowCoalesce(as, limit))
}

func TestCoalesceAgainstSlow(t *testing.T) {
	r := testRand(t)
	merges := 0
	for range 6000 {
		seed, ops := r.Uint64(), randomBytes(r, 3*r.IntN(4))
		checkScript(t, seed, ops)
		merges += len(slowCoalesce(script(seed, nil), 128))
	}
	t.Logf("%d packets out of unchanged flows", merges)
}

func FuzzCoalesce(f *testing.F) {
	for op := range uint8(16) {
		f.Add(uint64(op), []byte{1, op, 1, 2, op, 77})
	}
	f.Add(uint64(203), []byte("01C080")) // a spoilt header, changed again
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) { checkScript(t, seed, ops[:min(len(ops), 60)]) })
}

// FuzzCoalescePair takes two packets of any bytes.
func FuzzCoalescePair(f *testing.F) {
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
			s := stream(six, proto, 10, 2)
			f.Add(s[0], s[1])
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		in, err := ParseInner(a)
		in2, err2 := ParseInner(b)
		var r Run
		r.Add(b, in2, true)
		if err != nil || !r.Start(a, in, false) || err2 != nil {
			return
		}
		from, ok := r.Add(b, in2, false)
		if !ok {
			return
		}
		m := merged{append(slices.Clone(a[:in.TotalLen]), b[from:in2.TotalLen]...), 0, 2}
		checkSuper(t, r.Finish(m.pkt), m, []arrival{{a[:in.TotalLen], false}, {b[:in2.TotalLen], false}})
	})
}

// Segments of a superpacket merge into the same superpacket.
func TestSegmentThenCoalesce(t *testing.T) {
	r := testRand(t)
	for range 1000 {
		size := 1 + r.IntN(1448)
		pkt := randomSuper(r, min(size*2+r.IntN(40000), 65000, size*128))
		if pkt[0]>>4 == 4 && pkt[0]&15 != 5 || len(pkt)-slowHeaderLen(pkt) <= size {
			continue
		}
		if l4, proto := slowL4(pkt); proto == ProtoTCP {
			pkt[l4+13] = tcpACK | pkt[l4+13]&(tcpPSH|tcpECE)
		}
		partial := r.IntN(2) == 0
		slowFix(pkt, true)
		segs := slowSegment(pkt, size, partial)
		var as []arrival
		for _, s := range segs {
			as = append(as, arrival{s, partial})
		}
		got, hdrs := runCoalesce(new(Run), as)
		if len(got) != 1 || !bytes.Equal(got[0].pkt, pkt) {
			t.Fatalf("%d segments of %d merge into %d packets:\n%.80x\n%.80x", len(segs), size, len(got),
				got[0].pkt, pkt)
		}
		if int(hdrs[0].GSOSize) != size {
			t.Fatalf("%+v", hdrs[0])
		}
	}
}

func BenchmarkCoalesce(b *testing.B) {
	for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
		for _, six := range []bool{false, true} {
			for _, verify := range []bool{true, false} {
				as := arrivals(stream(six, proto, 1398, 45), !verify)
				head := make([]byte, MaxSegmentHeader)
				ins, bytes := make([]Inner, len(as)), 0
				for i, a := range as {
					ins[i], _ = ParseInner(a.pkt)
					bytes += len(a.pkt)
				}
				name := fmt.Sprintf("proto=%s/ip=%s/segments=45/verify=%t",
					map[uint8]string{ProtoTCP: "tcp", ProtoUDP: "udp"}[proto], family(six), verify)
				var r Run
				measure(b, name, bytes, func() {
					copy(head, as[0].pkt)
					ok := r.Start(as[0].pkt, ins[0], !verify)
					for i := 1; ok && i < len(as); i++ {
						_, ok = r.Add(as[i].pkt, ins[i], !verify)
					}
					if n := r.Segments(); n != 45 {
						b.Fatal(n)
					}
					r.Finish(head)
				})
			}
		}
	}
}
