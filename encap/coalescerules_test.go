package encap

import (
	"bytes"
	"slices"
	"testing"
)

// rule says how three packets of a flow, of which the second is changed, merge: it
// has the lengths of the groups in which they leave.
type rule struct {
	name   string
	six    bool
	proto  uint8
	change func([]byte) []byte
	want   []int
}

func rules() []rule {
	fix := func(f func(p []byte)) func([]byte) []byte {
		return func(p []byte) []byte { f(p); return slowFix(p, false) }
	}
	flag := func(f uint8) func([]byte) []byte {
		return fix(func(p []byte) { l4, _ := slowL4(p); p[l4+13] ^= f })
	}
	all, alone, closing := []int{3}, []int{1, 1, 1}, []int{2, 1}
	return []rule{
		{"tcp4", false, ProtoTCP, fix(func([]byte) {}), all},
		{"tcp6", true, ProtoTCP, fix(func([]byte) {}), all},
		{"udp4", false, ProtoUDP, fix(func([]byte) {}), all},
		{"udp6", true, ProtoUDP, fix(func([]byte) {}), all},
		{"psh closes", false, ProtoTCP, flag(tcpPSH), closing},
		{"fin", false, ProtoTCP, flag(tcpFIN), alone},
		{"syn", false, ProtoTCP, flag(tcpSYN), alone},
		{"rst", true, ProtoTCP, flag(tcpRST), alone},
		{"urg", true, ProtoTCP, flag(tcpURG), alone},
		{"cwr", true, ProtoTCP, flag(tcpCWR), alone},
		{"ece", true, ProtoTCP, flag(tcpECE), alone},
		{"no ack", false, ProtoTCP, flag(tcpACK), alone},
		{"pure ack", false, ProtoTCP, func(p []byte) []byte { return slowFix(p[:40], false) }, alone},
		{"empty datagram", true, ProtoUDP, func(p []byte) []byte { return slowFix(p[:48], false) }, alone},
		{"shorter closes", false, ProtoUDP, func(p []byte) []byte { return slowFix(p[:len(p)-1], false) }, closing},
		{"longer starts anew, and is longer than its next", false, ProtoUDP, func(p []byte) []byte {
			return slowFix(append(p, 1), false)
		}, []int{1, 2}},
		{"tos", false, ProtoTCP, fix(func(p []byte) { p[1] ^= 3 }), alone},
		{"ttl", false, ProtoTCP, fix(func(p []byte) { p[8]-- }), alone},
		{"df", false, ProtoTCP, fix(func(p []byte) { p[6] ^= 0x40 }), alone},
		{"identification", false, ProtoTCP, fix(func(p []byte) { p[5] += 2 }), alone},
		{"traffic class", true, ProtoTCP, fix(func(p []byte) { p[1] ^= 0x10 }), alone},
		{"flow label", true, ProtoUDP, fix(func(p []byte) { p[3] ^= 1 }), alone},
		{"hop limit", true, ProtoUDP, fix(func(p []byte) { p[7]-- }), alone},
		{"acknowledgement", false, ProtoTCP, fix(func(p []byte) { p[20+11]++ }), alone},
		{"window", false, ProtoTCP, fix(func(p []byte) { p[20+15]++ }), alone},
		{"port", false, ProtoUDP, fix(func(p []byte) { p[20+3]++ }), alone},
		{"corrupt payload", false, ProtoTCP, func(p []byte) []byte { p[60] ^= 1; return p }, alone},
		{"corrupt datagram", true, ProtoUDP, func(p []byte) []byte { p[60] ^= 1; return p }, alone},
		{"corrupt ip header checksum", false, ProtoTCP, func(p []byte) []byte { p[10] ^= 1; return p }, alone},
		{"udp4 without checksum", false, ProtoUDP, func(p []byte) []byte { p[26], p[27] = 0, 0; return p }, alone},
		{"ip options", false, ProtoTCP, func(p []byte) []byte {
			return slowFix(options(p, []byte{1, 1, 1, 1}), false)
		}, alone},
		{"fragment", false, ProtoUDP, fix(func(p []byte) { p[6] ^= 0x20 }), alone},
		{"extension header", true, ProtoTCP, func(p []byte) []byte {
			return extension(p, protoDestOpts, make([]byte, 8))
		}, alone},
	}
}

func TestCoalesceRules(t *testing.T) {
	for _, tc := range rules() {
		pkts := stream(tc.six, tc.proto, 100, 3)
		pkts[1] = tc.change(pkts[1])
		as := arrivals(pkts, false)
		got, hdrs := runCoalesce(new(Run), as)
		var groups []int
		for i, g := range got {
			groups = append(groups, g.n)
			if g.n == 1 && !bytes.Equal(g.pkt, as[g.from].pkt) {
				t.Errorf("%s: a lone packet is not verbatim", tc.name)
			}
			if g.n > 1 {
				checkSuper(t, hdrs[i], g, as)
			}
		}
		if !slices.Equal(groups, tc.want) {
			t.Errorf("%s: leave as %v, want %v", tc.name, groups, tc.want)
		}
	}
}

// Packets that all have the flag do not merge either, but for ECE.
func TestCoalesceFlagged(t *testing.T) {
	for f := range 8 {
		pkts := stream(true, ProtoTCP, 100, 3)
		for _, p := range pkts {
			p[40+13] = tcpACK | 1<<f
			slowFix(p, false)
		}
		want := 3
		if 1<<f == tcpECE || 1<<f == tcpACK {
			want = 1
		}
		if got, _ := runCoalesce(new(Run), arrivals(pkts, false)); len(got) != want {
			t.Errorf("flag %#x: %d packets leave, want %d", 1<<f, len(got), want)
		}
	}
}

// A datagram without checksum does not merge, though a sum over it comes out right.
func TestCoalesceZeroChecksum(t *testing.T) {
	super := transport(false, ProtoUDP, 300, false)
	at := sumZero(t, super)
	for _, partial := range []bool{false, true} {
		pkts := slowSegment(super, 100, false)
		pkts[1][at], pkts[1][at+1] = 0, 0
		as := arrivals(pkts, false)
		as[1].partial = partial
		if got, _ := runCoalesce(new(Run), as); len(got) != 3 {
			t.Errorf("partial %t: %d packets leave", partial, len(got))
		}
	}
}

// With DF the identification may stand still, or count, but has to keep to it.
func TestCoalesceFixedID(t *testing.T) {
	for _, tc := range []struct {
		ids  []uint8
		df   bool
		want int // packets that leave
	}{
		{[]uint8{7, 7, 7}, true, 1},
		{[]uint8{7, 8, 9}, true, 1},
		{[]uint8{7, 7, 8}, true, 2},
		{[]uint8{7, 8, 8}, true, 2},
		{[]uint8{7, 9, 11}, true, 3},
		{[]uint8{7, 7, 7}, false, 3},
		{[]uint8{7, 8, 9}, false, 1},
	} {
		pkts := stream(false, ProtoTCP, 100, 3)
		for i, p := range pkts {
			p[4], p[5], p[6] = 0, tc.ids[i], 0
			if tc.df {
				p[6] = 0x40
			}
			slowFix(p, false)
		}
		if got, _ := runCoalesce(new(Run), arrivals(pkts, false)); len(got) != tc.want {
			t.Errorf("%+v: %d packets leave", tc, len(got))
		}
	}
}

func TestRunLimits(t *testing.T) {
	count := func(r *Run, pkts [][]byte) (most, length int) {
		got, _ := runCoalesce(r, arrivals(pkts, true))
		for _, g := range got {
			most, length = max(most, g.n), max(length, len(g.pkt))
		}
		return most, length
	}
	small := func(proto uint8, size, n int) (pkts [][]byte) { // more than one superpacket holds
		for len(pkts) < n {
			more := stream(false, proto, size, min(100, 65000/size))
			for _, p := range more {
				p[4], p[5] = byte(len(pkts)>>8), byte(len(pkts))
				if proto == ProtoTCP {
					p[20+4], p[20+5], p[20+6], p[20+7] = 0, byte(len(pkts)*size>>16), byte(len(pkts)*size>>8),
						byte(len(pkts)*size)
				}
				pkts = append(pkts, slowFix(p, false))
			}
		}
		return pkts
	}
	if n, _ := count(new(Run), small(ProtoUDP, 10, 300)); n != MaxUDPSegments {
		t.Errorf("%d datagrams in one", n)
	}
	if n, _ := count(&Run{UDPSegments: 64}, small(ProtoUDP, 10, 300)); n != 64 {
		t.Errorf("%d datagrams in one", n)
	}
	if n, length := count(new(Run), small(ProtoTCP, 10, 8000)); n != (65535-40)/10 || length > 65535 {
		t.Errorf("%d segments in %d bytes", n, length)
	}
	if n, length := count(new(Run), small(ProtoTCP, 1398, 200)); n != 46 || length != 40+46*1398 {
		t.Errorf("%d segments in %d bytes", n, length)
	}
}

func TestRunIdle(t *testing.T) {
	pkts := stream(false, ProtoTCP, 100, 2)
	in, _ := ParseInner(pkts[0])
	var r Run
	if _, ok := r.Add(pkts[0], in, false); ok || !r.Closed() || r.Finish(pkts[0]) != (VNetHdr{}) {
		t.Error("an idle run does something")
	}
	if r.Add(nil, Inner{}, true); r.Start(nil, Inner{}, true) {
		t.Error("nothing starts a run")
	}
	if !r.Start(pkts[0], in, false) || r.Closed() || r.TotalLen() != 140 {
		t.Error("does not start")
	}
	if before := slices.Clone(pkts[0]); r.Finish(pkts[0][:39]) != (VNetHdr{}) || !bytes.Equal(pkts[0], before) ||
		r.Segments() != 0 {
		t.Error("a head too short is changed")
	}
	slowFix(pkts[0], true)
	if !r.Start(pkts[0], in, true) {
		t.Error("does not start with a partial checksum")
	}
	want := VNetHdr{Flags: VNetNeedsCsum, HdrLen: 40, CsumStart: 20, CsumOffset: 16}
	if got := r.Finish(pkts[0]); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
