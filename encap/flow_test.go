package encap

import (
	"math/bits"
	"slices"
	"testing"
)

func flowPairHash(t testing.TB, b []byte) uint32 {
	t.Helper()
	in, err := ParseInner(b)
	if err != nil {
		t.Fatal(err)
	}
	return FlowPairHash(b, in)
}

// reversed is b with addresses and ports exchanged. The checksums do not mind.
func reversed(b []byte) []byte {
	r := slices.Clone(b)
	at, n, l4 := 12, 4, 20
	if b[0]>>4 == 6 {
		at, n, l4 = 8, 16, 40
	}
	copy(r[at:], b[at+n:at+2*n])
	copy(r[at+n:], b[at:at+n])
	copy(r[l4:], b[l4+2:l4+4])
	copy(r[l4+2:], b[l4:l4+2])
	return r
}

// What tells flows apart changes the hash, and nothing else does: both directions of a flow have the same.
func TestFlowPairHashFields(t *testing.T) {
	for _, six := range []bool{false, true} {
		l4, proto, addrs, tos, ttl := 20, 9, 12, 1, 8
		if six {
			l4, proto, addrs, tos, ttl = 40, 6, 8, 1, 7
		}
		base := transport(six, ProtoTCP, 100, true)
		want := flowPairHash(t, base)
		if got := flowPairHash(t, reversed(base)); got != want {
			t.Errorf("ip=%s: the other direction: %#x, was %#x", family(six), got, want)
		}
		for what, c := range map[string]struct {
			at   int
			flow bool
		}{
			"source":           {addrs + 3, true},
			"destination":      {l4 - 1, true},
			"source port":      {l4 + 1, true},
			"destination port": {l4 + 2, true},
			"protocol":         {proto, true}, // of TCP, UDP and SCTP here
			"traffic class":    {tos, false},
			"ttl":              {ttl, false},
			"sequence number":  {l4 + 7, false},
			"payload":          {l4 + 50, false},
		} {
			b := slices.Clone(base)
			b[c.at] ^= 1
			if what == "protocol" {
				b[c.at] = ProtoUDP
			}
			if got := flowPairHash(t, b); (got != want) != c.flow {
				t.Errorf("ip=%s: %s changed: %#x, was %#x", family(six), what, got, want)
			}
		}
		if got := flowPairHash(t, transport(six, ProtoTCP, 7, false)); got != want {
			t.Errorf("ip=%s: another length: %#x, was %#x", family(six), got, want)
		}
		if got := flowPairHash(t, append(slices.Clone(base), 1, 2, 3)); got != want {
			t.Errorf("ip=%s: bytes behind: %#x, was %#x", family(six), got, want)
		}
	}
}

func TestFlowPairHashWithoutPorts(t *testing.T) {
	whole := packet(false, ProtoUDP, testBytes(2000))
	whole[6], whole[7] = 0, 0
	frags, err := fragments(fixHeader(whole), 600)
	if err != nil || len(frags) < 3 {
		t.Fatal(len(frags), err)
	}
	for _, f := range frags {
		if flowPairHash(t, f) != flowPairHash(t, frags[0]) {
			t.Errorf("fragments of one packet hash differently")
		}
	}
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{ProtoICMP, 47, ProtoUDP} {
			a, b := packet(six, proto, []byte{1, 2, 3}), packet(six, proto, []byte{4, 5, 6})
			if flowPairHash(t, a) != flowPairHash(t, b) {
				t.Errorf("ip=%s proto=%d: there are no ports, but bytes count", family(six), proto)
			}
		}
	}
	a, b := packet(false, protoSCTP, testBytes(12)), packet(false, protoSCTP, testBytes(12))
	b[20] ^= 1
	if flowPairHash(t, a) == flowPairHash(t, b) {
		t.Error("ports of SCTP do not count")
	}
	in, _ := ParseInner(whole)
	for _, c := range []struct {
		b  []byte
		in Inner
	}{
		{nil, Inner{}}, {nil, Inner{TotalLen: 1}}, {nil, in}, {whole[:len(whole)-1], in},
		{whole[:10], Inner{Version: 4, TotalLen: 10}}, {whole[:30], Inner{Version: 6, TotalLen: 30}},
	} {
		if h := FlowPairHash(c.b, c.in); h != 0 {
			t.Errorf("%d bytes, said to be %d: %#x", len(c.b), c.in.TotalLen, h)
		}
	}
}

func testBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// Flows that differ by a count in one field spread over a table, by the high bits
// or by the low ones, and a bit of difference changes about half of the hash.
func TestFlowPairHashMixes(t *testing.T) {
	const flows, places = 1 << 14, 1 << 8 // 64 in a place, with a deviation of 8
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 0, false)
		in, err := ParseInner(pkt)
		if err != nil {
			t.Fatal(err)
		}
		for what, at := range map[string]int{"port": in.L4, "destination port": in.L4 + 2, "address": in.L4 - 2,
			"source": in.L4 - 6} {
			if six && what == "source" {
				at = 22
			}
			b, changed := slices.Clone(pkt), 0
			var high, low [places]int
			before := FlowPairHash(b, in)
			for i := range flows {
				b[at], b[at+1] = byte(i>>8), byte(i)
				h := FlowPairHash(b, in)
				high[h>>24]++
				low[h%places]++
				changed += bits.OnesCount32(h ^ before)
				before = h
			}
			for _, places := range [][places]int{high, low} {
				if most, least := slices.Max(places[:]), slices.Min(places[:]); most > 64+6*8 || least < 64-6*8 {
					t.Errorf("ip=%s %s: between %d and %d flows in a place, want about 64", family(six), what, least, most)
				}
			}
			if mean := changed / flows; mean < 14 || mean > 17 {
				t.Errorf("ip=%s %s: neighbours differ in %d bits, want about 16", family(six), what, mean)
			}
		}
	}
}
