package encap

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// slowAddrs and slowL4 read a packet whose headers are known to be plain.
func slowAddrs(pkt []byte) []byte {
	if pkt[0]>>4 == 4 {
		return pkt[12:20]
	}
	return pkt[8:40]
}

func slowL4(pkt []byte) (l4 int, proto uint8) {
	if pkt[0]>>4 == 4 {
		return int(pkt[0]&15) * 4, pkt[9]
	}
	return 40, pkt[6]
}

// slowFix sets the lengths of a packet to what it has, and its checksums; the
// transport checksum to the seed if partial.
func slowFix(pkt []byte, partial bool) []byte {
	l4, proto := slowL4(pkt)
	n := len(pkt) - l4
	if pkt[0]>>4 == 4 {
		binary.BigEndian.PutUint16(pkt[2:], uint16(len(pkt)))
		pkt[10], pkt[11] = 0, 0
		binary.BigEndian.PutUint16(pkt[10:], ^slowSum(pkt[:l4], 0))
	} else {
		binary.BigEndian.PutUint16(pkt[4:], uint16(n))
	}
	at := l4 + 16
	if proto == ProtoUDP {
		at = l4 + 6
		binary.BigEndian.PutUint16(pkt[l4+4:], uint16(n))
	}
	binary.BigEndian.PutUint16(pkt[at:], slowSum(slowAddrs(pkt), uint64(proto)+uint64(n)))
	if partial {
		return pkt
	}
	check := ^slowSum(pkt[l4:], 0)
	if check == 0 && proto == ProtoUDP {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(pkt[at:], check)
	return pkt
}

func slowHeaderLen(pkt []byte) int {
	l4, proto := slowL4(pkt)
	if proto == ProtoUDP {
		return l4 + 8
	}
	return l4 + int(pkt[l4+12]>>4)*4
}

// slowPlain says whether a packet has the headers that the functions here ask for.
func slowPlain(pkt []byte) bool {
	if len(pkt) < 40 && pkt[0]>>4 != 4 || len(pkt) < 20 {
		return false
	}
	l4, proto := slowL4(pkt)
	switch proto {
	case ProtoUDP:
		return l4 >= 20 && len(pkt) >= l4+8
	case ProtoTCP:
		return l4 >= 20 && len(pkt) >= l4+20 && pkt[l4+12]>>4 >= 5 && len(pkt) >= slowHeaderLen(pkt)
	}
	return false
}

// slowSegment cuts a superpacket by copying, as the comment of Super.AppendHeader says.
func slowSegment(pkt []byte, size int, partial bool) (segs [][]byte) {
	l4, proto := slowL4(pkt)
	head, payload := pkt[:slowHeaderLen(pkt)], pkt[slowHeaderLen(pkt):]
	seq := uint32(0)
	if proto == ProtoTCP {
		seq = binary.BigEndian.Uint32(pkt[l4+4:])
	}
	for k := 0; ; k++ {
		last := len(payload) <= size
		n := min(size, len(payload))
		seg := append(slices.Clone(head), payload[:n]...)
		if pkt[0]>>4 == 4 {
			binary.BigEndian.PutUint16(seg[4:], binary.BigEndian.Uint16(pkt[4:])+uint16(k))
		}
		if proto == ProtoTCP {
			binary.BigEndian.PutUint32(seg[l4+4:], seq)
			if k > 0 {
				seg[l4+13] &^= 0x80 // CWR
			}
			if !last {
				seg[l4+13] &^= 0x09 // FIN, PSH
			}
		}
		seq += uint32(n)
		payload = payload[n:]
		segs = append(segs, slowFix(seg, partial))
		if last {
			return segs
		}
	}
}

// arrival is a packet and what is known of it.
type arrival struct {
	pkt     []byte
	partial bool
}

// slowMerged says whether the packets may be one superpacket, and returns it. They may
// if none of them is of a kind that never merges, and if the superpacket, cut again,
// gives the same packets.
func slowMerged(as []arrival, udpSegments int) ([]byte, bool) {
	first := as[0].pkt
	in, err := ParseInner(first)
	if err != nil || in.Fragment() || in.Proto != ProtoTCP && in.Proto != ProtoUDP {
		return nil, false
	}
	if want := map[uint8]int{4: 20, 6: 40}[in.Version]; in.HeaderLen != want || in.L4 != want {
		return nil, false
	}
	if _, err := ParseSuper(first, in, 1); err != nil {
		return nil, false // judged by a test of its own
	}
	size := len(first) - slowHeaderLen(first)
	if size < 1 || in.Proto == ProtoUDP && len(as) > udpSegments {
		return nil, false
	}
	super := slices.Clone(first)
	var ids []uint16
	for k, a := range as {
		p := a.pkt
		ids = append(ids, binary.BigEndian.Uint16(p[4:]))
		if k > 0 {
			if len(p) <= slowHeaderLen(first) || len(super) >= 65536 {
				return nil, false
			}
			super = append(super, p[slowHeaderLen(first):]...)
		}
		if in.Proto == ProtoTCP && len(p) > in.L4+20 {
			if p[in.L4+13]&^0x48 != 0x10 || k == 0 && p[in.L4+13]&8 != 0 { // ACK; ECE or PSH may be
				return nil, false
			}
			super[in.L4+13] |= p[in.L4+13] & 8
		}
	}
	if len(super) > 65535 {
		return nil, false
	}
	fixed := in.Version == 4 && in.DF && len(slices.Compact(ids)) == 1
	for k, seg := range slowSegment(super, size, false) {
		if k >= len(as) || !slowSame(as[k], seg, fixed) {
			return nil, false
		}
	}
	return slowFix(super, true), true
}

// slowSame compares what arrived with what was cut, but for the fields that may differ.
func slowSame(a arrival, seg []byte, fixedID bool) bool {
	p := slices.Clone(a.pkt)
	seg = slices.Clone(seg)
	l4, proto := slowL4(seg)
	if fixedID {
		copy(seg[4:6], p[4:6])
		slowFix(seg, false)
	}
	field := func(b []byte) []byte {
		if proto == ProtoUDP {
			return b[l4+6 : l4+8]
		}
		return b[l4+16 : l4+18]
	}
	if len(p) != len(seg) {
		return false
	}
	if proto == ProtoTCP && binary.BigEndian.Uint16(field(p)) == 0xffff {
		copy(field(p), []byte{0, 0})
	}
	if a.partial {
		copy(field(p), field(seg))
	}
	return bytes.Equal(p, seg)
}

// merged is one packet that leaves, superpacket or not, and the packets that it stands for.
type merged struct {
	pkt  []byte
	from int
	n    int
}

// slowCoalesce merges greedily, neighbours only.
func slowCoalesce(as []arrival, udpSegments int) (out []merged) {
	for i := 0; i < len(as); {
		m := merged{slices.Clone(as[i].pkt), i, 1}
		for n := 2; i+n <= len(as); n++ {
			super, ok := slowMerged(as[i:i+n], udpSegments)
			if !ok {
				break
			}
			m.pkt, m.n = super, n
		}
		out = append(out, m)
		i += m.n
	}
	return out
}

// runCoalesce does the same with a Run.
func runCoalesce(r *Run, as []arrival) (out []merged, hdrs []VNetHdr) {
	finish := func() {
		if r.Segments() == 0 {
			return
		}
		m := &out[len(out)-1]
		if r.TotalLen() != len(m.pkt) || r.Segments() != m.n {
			panic("the run is not the packet")
		}
		hdrs = append(hdrs, r.Finish(m.pkt))
	}
	for i, a := range as {
		in, err := ParseInner(a.pkt)
		if err == nil {
			if from, ok := r.Add(a.pkt, in, a.partial); ok {
				m := &out[len(out)-1]
				m.pkt = append(m.pkt, a.pkt[from:in.TotalLen]...)
				m.n++
				continue
			}
		}
		finish()
		out = append(out, merged{slices.Clone(a.pkt), i, 1})
		if err != nil || !r.Start(a.pkt, in, a.partial) {
			hdrs = append(hdrs, VNetHdr{})
		}
	}
	finish()
	return out, hdrs
}
