package encap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomSuper makes a packet of any plain shape that can be segmented, with
// n payload bytes, and its transport checksum seeded.
func randomSuper(r *rand.Rand, n int) []byte {
	six, proto := r.IntN(2) == 0, uint8(ProtoTCP)
	if r.IntN(3) == 0 {
		proto = ProtoUDP
	}
	l4 := randomBytes(r, 8)
	if proto == ProtoTCP {
		words := 5 + r.IntN(11)
		l4 = randomBytes(r, 4*words)
		l4[12] = uint8(words<<4) | l4[12]&15
		if r.IntN(4) == 0 {
			binary.BigEndian.PutUint32(l4[4:], 0xffffffff-uint32(r.IntN(n+1)))
		}
	}
	pkt := packet(six, proto, append(l4, randomBytes(r, n)...))
	if six {
		copy(pkt[1:4], randomBytes(r, 3))
		pkt[0] |= uint8(r.IntN(16))
		copy(pkt[8:40], randomBytes(r, 32))
	} else {
		pkt[1] = uint8(r.Uint32())
		copy(pkt[4:6], randomBytes(r, 2))
		pkt[6] = uint8(r.IntN(2)) << 6
		copy(pkt[12:20], randomBytes(r, 8))
		if r.IntN(3) == 0 {
			pkt = options(pkt, randomBytes(r, 4*(1+r.IntN(10))))
		}
	}
	return slowFix(pkt, true)
}

// segments cuts pkt with Super and glues header and payload together.
func segments(t testing.TB, pkt []byte, size int, partial bool) (segs [][]byte) {
	t.Helper()
	in, err := ParseInner(pkt)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSuper(pkt, in, size)
	if err != nil {
		t.Fatal(err)
	}
	return cut(t, &s, pkt, partial)
}

func cut(t testing.TB, s *Super, pkt []byte, partial bool) (segs [][]byte) {
	t.Helper()
	end := s.HeaderLen
	for k := range s.Segments {
		from, to := s.Payload(k)
		if from != end {
			t.Fatalf("segment %d starts at %d, the one before ended at %d", k, from, end)
		}
		end = to
		seg := s.AppendHeader([]byte("dst"), pkt, k, partial)[3:]
		seg = append(seg, pkt[from:to]...)
		if len(seg) != s.SegmentLen(k) {
			t.Fatalf("segment %d has %d bytes, SegmentLen says %d", k, len(seg), s.SegmentLen(k))
		}
		segs = append(segs, seg)
	}
	if end != s.TotalLen {
		t.Fatalf("segments end at %d of %d", end, s.TotalLen)
	}
	return segs
}

func samePackets(t testing.TB, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	for k := range got {
		if !bytes.Equal(got[k], want[k]) {
			n := min(len(got[k]), len(want[k]), MaxSegmentHeader)
			t.Fatalf("packet %d of %d, %d bytes (want %d):\n got %x\nwant %x", k, len(got), len(got[k]), len(want[k]),
				got[k][:n], want[k][:n])
		}
	}
}

func TestSegmentAgainstSlow(t *testing.T) {
	r := testRand(t)
	for range 1000 {
		n := r.IntN(5000)
		if r.IntN(20) == 0 {
			n = r.IntN(65535 - MaxSegmentHeader)
		}
		size := 1 + r.IntN(1500)
		if n < 500 && r.IntN(2) == 0 {
			size = 1 + r.IntN(8)
		}
		pkt, partial := randomSuper(r, n), r.IntN(2) == 0
		in, err := ParseInner(pkt)
		if err != nil {
			t.Fatal(err)
		}
		samePackets(t, segments(t, pkt, size, partial), slowSegment(pkt, size, partial))
		for _, seg := range segments(t, pkt, size, false) {
			in2, err := ParseInner(seg)
			if err != nil || !ChecksumOK(seg, in2) || !headerChecksumOK(seg) || in2.TrafficClass != in.TrafficClass {
				t.Fatalf("segment %x of %x: %v", seg, pkt, err)
			}
		}
	}
}

// sumZero makes a superpacket with three segments of 100 bytes, of which the second
// sums to 0xffff, so that its checksum is 0 in one way or another. It returns where
// in a segment the checksum is.
func sumZero(t testing.TB, pkt []byte) (at int) {
	t.Helper()
	l4, proto := slowL4(pkt)
	at = l4 + map[uint8]int{ProtoTCP: 16, ProtoUDP: 6}[proto]
	missing := binary.BigEndian.Uint16(slowSegment(pkt, 100, false)[1][at:])
	word := pkt[slowHeaderLen(pkt)+150:]
	sum := uint32(binary.BigEndian.Uint16(word)) + uint32(missing) // adding what is missing
	binary.BigEndian.PutUint16(word, uint16(sum+sum>>16))
	if c := binary.BigEndian.Uint16(slowSegment(pkt, 100, false)[1][at:]); c != 0 && c != 0xffff {
		t.Fatalf("checksum %#x: the test is wrong", c)
	}
	return at
}

// TestNextHeader compares each header that was made of the one before with one that was made anew.
func TestNextHeader(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	var middle int
	for range 2000 {
		pkt := randomSuper(r, 1+r.IntN(3000))
		in, err := ParseInner(pkt)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSuper(pkt, in, 1+r.IntN(700))
		if err != nil {
			t.Fatal(err)
		}
		for k := -1; k <= s.Segments; k++ {
			before := s.AppendHeader(nil, pkt, k-1, true)
			head := bytes.Clone(before)
			switch ok := s.NextHeader(head, k); {
			case ok != (k >= 2 && k < s.Segments-1):
				t.Fatalf("segment %d of %d: %v", k, s.Segments, ok)
			case ok && !bytes.Equal(head, s.AppendHeader(nil, pkt, k, true)):
				t.Fatalf("segment %d of %d: %x, want %x", k, s.Segments, head, s.AppendHeader(nil, pkt, k, true))
			case !ok && !bytes.Equal(head, before):
				t.Fatalf("segment %d of %d has none, but its head was changed", k, s.Segments)
			case ok:
				middle++
			}
		}
		if s.Segments > 3 && s.NextHeader(make([]byte, s.HeaderLen-1), 2) {
			t.Fatal("a head that is too short was taken")
		}
	}
	if middle == 0 {
		t.Error("no segment was neither the first nor the last")
	}
}

// Where a checksum comes to 0, TCP gets 0, UDP 0xffff.
func TestSegmentChecksumZero(t *testing.T) {
	for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
		pkt := transport(false, proto, 300, false)
		at := sumZero(t, pkt)
		want := uint16(0)
		if proto == ProtoUDP {
			want = 0xffff
		}
		seg := segments(t, pkt, 100, false)[1]
		in, err := ParseInner(seg)
		if got := binary.BigEndian.Uint16(seg[at:]); got != want || err != nil || !ChecksumOK(seg, in) {
			t.Errorf("proto %d: checksum %#x, %v", proto, got, err)
		}
	}
}

func TestParseSuperRefuses(t *testing.T) {
	tcp, udp := transport(false, ProtoTCP, 100, true), transport(true, ProtoUDP, 100, true)
	edit := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	for _, tc := range []struct {
		name string
		pkt  []byte
		size int
		want error
	}{
		{"size 0", tcp, 0, ErrNotEligible},
		{"size negative", tcp, -1, ErrNotEligible},
		{"icmp", edit(tcp, 9, ProtoICMP), 10, ErrNotEligible},
		{"fragment", edit(tcp, 6, 0x20), 10, ErrNotEligible},
		{"later fragment", edit(tcp, 7, 1), 10, ErrNotEligible},
		{"long extension header", extension(udp, protoDestOpts, append([]byte{0, 9}, make([]byte, 78)...)), 10,
			ErrNotEligible},
		{"routing header", extension(udp, protoRouting, []byte{0, 0, 2, 1, 0, 0, 0, 0}), 10, ErrNotEligible},
		{"data offset 4", edit(tcp, 20+12, 4<<4), 10, ErrMalformed},
		{"data offset past the end", transportCut(tcp, 20+24, 20+12, 7<<4), 10, ErrMalformed},
		{"tcp cut", transportCut(tcp, 20+19, 0, 0x45), 10, ErrMalformed},
		{"udp cut", transportCut(udp, 40+7, 0, 0x60), 10, ErrMalformed},
		{"udp length", edit(udp, 40+5, 99), 10, ErrMalformed},
	} {
		in, err := ParseInner(tc.pkt)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if _, err := ParseSuper(tc.pkt, in, tc.size); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	in, err := ParseInner(tcp)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseSuper(tcp[:90], in, 10); !errors.Is(err, ErrShort) {
		t.Errorf("cut packet: %v", err)
	}
}

// transportCut cuts b to n bytes, says so in its IP header, and sets byte at to v.
func transportCut(b []byte, n, at int, v byte) []byte {
	b = bytes.Clone(b[:n])
	b[at] = v
	if b[0]>>4 == 4 {
		binary.BigEndian.PutUint16(b[2:], uint16(n))
	} else {
		binary.BigEndian.PutUint16(b[4:], uint16(n-40))
	}
	return b
}

func TestSuperOutOfRange(t *testing.T) {
	pkt := transport(false, ProtoTCP, 100, true)
	in, _ := ParseInner(pkt)
	s, err := ParseSuper(pkt, in, 30)
	if err != nil || s.Segments != 4 {
		t.Fatal(s.Segments, err)
	}
	for _, k := range []int{-1, 4} {
		if from, to := s.Payload(k); from != to {
			t.Errorf("payload of segment %d: %d to %d", k, from, to)
		}
		if got := s.AppendHeader(nil, pkt, k, false); got != nil {
			t.Errorf("header of segment %d: %x", k, got)
		}
	}
	if got := s.AppendHeader(nil, pkt[:100], 0, false); got != nil {
		t.Errorf("header from a cut packet: %x", got)
	}
}

func FuzzSegment(f *testing.F) {
	for _, six := range []bool{false, true} {
		f.Add(transport(six, ProtoTCP, 500, true), 100)
		f.Add(transport(six, ProtoUDP, 500, false), 99)
	}
	f.Add(options(transport(false, ProtoTCP, 50, true), make([]byte, 8)), 7)
	f.Add(transport(false, ProtoTCP, 0, true), 1)
	f.Add(extension(transport(true, ProtoTCP, 300, true), protoDestOpts, make([]byte, 8)), 100)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		in, err := ParseInner(b)
		if err != nil {
			return
		}
		s, err := ParseSuper(b, in, size)
		if err != nil {
			if !errors.Is(err, ErrNotEligible) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrShort) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		for _, partial := range []bool{false, true} {
			samePackets(t, cut(t, &s, b, partial), slowExtended(b[:in.TotalLen], &s, partial))
		}
	})
}

// slowExtended is slowSegment with IPv6 extension headers taken out before, and put back.
func slowExtended(pkt []byte, s *Super, partial bool) [][]byte {
	between := pkt[s.Inner.HeaderLen:s.L4]
	if len(between) == 0 {
		return slowSegment(pkt, s.SegmentSize, partial)
	}
	plain := append(bytes.Clone(pkt[:IPv6Len]), pkt[s.L4:]...)
	plain[6] = s.Proto
	binary.BigEndian.PutUint16(plain[4:], uint16(len(plain)-IPv6Len))
	segs := slowSegment(plain, s.SegmentSize, partial)
	for i, seg := range segs {
		segs[i] = append(append(bytes.Clone(seg[:IPv6Len]), between...), seg[IPv6Len:]...)
		segs[i][6] = pkt[6]
		binary.BigEndian.PutUint16(segs[i][4:], uint16(len(segs[i])-IPv6Len))
	}
	return segs
}

func BenchmarkSegment(b *testing.B) {
	for _, six := range []bool{false, true} {
		for _, size := range []int{1398, 1448} {
			for _, partial := range []bool{false, true} {
				pkt, dst := transport(six, ProtoTCP, 65400, false), make([]byte, 0, MaxSegmentHeader)
				in, err := ParseInner(pkt)
				if err != nil {
					b.Fatal(err)
				}
				name := fmt.Sprintf("proto=tcp/ip=%s/mss=%d/partial=%t", family(six), size, partial)
				measure(b, name, len(pkt), func() {
					s, err := ParseSuper(pkt, in, size)
					if err != nil {
						b.Fatal(err)
					}
					for k := range s.Segments {
						s.AppendHeader(dst, pkt, k, partial)
					}
				})
			}
		}
	}
}
