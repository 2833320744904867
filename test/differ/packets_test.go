package differ

import (
	"encoding/binary"
	"math/rand/v2"

	"weft/encap"
)

// Addresses of the overlay: pods of ours are in 10.1.1.0/24 and fd00:1:1::/64, those of the one peer in
// 10.1.2.0/24 and fd00:1:2::/64.
const (
	ourNet  = 1
	peerNet = 2
)

// dice is where all randomness comes from. It is made anew for each packet, of the run's seed and the
// packet's number, so that each packet can be made again by itself.
type dice struct {
	*rand.Rand
	pcg *rand.PCG
}

func newDice() dice {
	p := rand.NewPCG(0, 0)
	return dice{rand.New(p), p}
}

func (d dice) reset(seed, number uint64) { d.pcg.Seed(seed, number) }

// one says whether something that happens once in n times does.
func (d dice) one(n int) bool { return d.IntN(n) == 0 }

func (d dice) fill(b []byte) {
	for len(b) >= 8 {
		binary.NativeEndian.PutUint64(b, d.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(d.Uint32())
	}
}

// ttl is mostly an ordinary one.
func (d dice) ttl() byte {
	if d.one(8) {
		return [...]byte{0, 1, 2, 3, 255, 254}[d.IntN(6)]
	}
	return byte(3 + d.IntN(253))
}

// tos is mostly 0.
func (d dice) tos() byte {
	if d.one(2) {
		return byte(d.Uint32())
	}
	return 0
}

// size is that of a payload, in bytes, so that packets are at most most bytes long.
func (d dice) size(most int) int {
	switch d.IntN(16) {
	case 0:
		return max(0, most-d.IntN(60))
	case 1:
		return d.IntN(most)
	}
	return d.IntN(120)
}

// addr puts an address of a node's pods into b.
func (d dice) addr(b []byte, node byte) {
	host := byte(1 + d.IntN(250))
	if len(b) == 4 {
		b[0], b[1], b[2], b[3] = 10, 1, node, host
		return
	}
	clear(b)
	b[0], b[3], b[5], b[15] = 0xfd, 1, node, host
}

// inner appends a valid inner packet of one family from a pod of node from to one of node to, of at most most
// bytes.
func (d dice) inner(b []byte, six bool, from, to byte, most int) []byte {
	at := len(b)
	if six {
		b = d.header6(b, from, to)
	} else {
		b = d.header4(b, from, to)
	}
	return d.body(b, at, six, most)
}

func (d dice) header4(b []byte, from, to byte) []byte {
	at := len(b)
	b = append(b, make([]byte, encap.IPv4Len)...)
	h := b[at:]
	h[0], h[1] = 0x45, d.tos()
	binary.BigEndian.PutUint16(h[4:], uint16(d.Uint32()))
	if d.one(2) {
		h[6] = 0x40
	}
	h[8] = d.ttl()
	d.addr(h[12:16], from)
	d.addr(h[16:20], to)
	if d.one(24) {
		// options: no operation, the end, an unknown one, recorded routes, router alert; no timestamps, which would
		// say when
		opts := [...][]byte{{1, 1, 1, 1}, {1, 0, 0, 0}, {0x9e, 4, 7, 7}, {7, 7, 4, 0, 0, 0, 0, 0},
			{0x94, 4, 0, 0}}[d.IntN(5)]
		b = append(b, opts...)
		b[at] += byte(len(opts) / 4)
	}
	if d.one(24) { // a fragment
		v := uint16(d.IntN(0x2000))
		if d.one(2) {
			v &= 0x3f
		}
		if d.one(2) {
			v |= 0x2000
		}
		binary.BigEndian.PutUint16(b[at+6:], v)
	}
	return b
}

func (d dice) header6(b []byte, from, to byte) []byte {
	at := len(b)
	b = append(b, make([]byte, encap.IPv6Len)...)
	h := b[at:]
	binary.BigEndian.PutUint32(h, 6<<28|uint32(d.tos())<<20)
	if d.one(4) {
		h[2], h[3] = byte(d.Uint32()), byte(d.Uint32())
	}
	h[7] = d.ttl()
	d.addr(h[8:24], from)
	d.addr(h[24:40], to)
	h[6] = encap.ProtoUDP
	next := at + 6
	for range 3 {
		if !d.one(12) {
			break
		}
		kind := [...]byte{60, 44, 43, 60, 135, 51}[d.IntN(6)]
		b[next] = kind
		next = len(b)
		ext := [16]byte{encap.ProtoUDP, 0, 1, 4}
		n := 8
		switch kind {
		case 44:
			binary.BigEndian.PutUint16(ext[2:], uint16(d.Uint32()))
		case 43:
			ext[2], ext[3] = 3, byte(d.IntN(2))
			ext[1] = byte(d.IntN(2))
			n += int(ext[1]) * 8
		case 51:
			ext[1] = 1
			n = 12
		}
		b = append(b, ext[:n]...)
	}
	return b
}

// body appends a transport header and a payload, and makes lengths and checksums right. The packet begins at
// b[at:].
func (d dice) body(b []byte, at int, six bool, most int) []byte {
	l4 := len(b)
	size := d.size(max(1, most-(l4-at)-20))
	proto := [...]byte{encap.ProtoUDP, encap.ProtoUDP, encap.ProtoTCP, encap.ProtoTCP, encap.ProtoICMP,
		132}[d.IntN(6)]
	if six && proto == encap.ProtoICMP {
		proto = encap.ProtoICMPv6
	}
	head := 8
	field := 2
	switch proto {
	case encap.ProtoTCP:
		head, field = 20, 16
	case encap.ProtoUDP:
		field = 6
	}
	b = append(b, make([]byte, head+size)...)
	seg := b[l4:]
	d.fill(seg[head:])
	d.fill(seg[:head])
	switch proto {
	case encap.ProtoTCP:
		seg[12], seg[13] = 0x50, seg[13]&0x3f
	case encap.ProtoUDP:
		binary.BigEndian.PutUint16(seg[4:], uint16(len(seg)))
	case encap.ProtoICMP:
		seg[0], seg[1] = [...]byte{8, 0, 3, 11}[d.IntN(4)], 0
	case encap.ProtoICMPv6:
		seg[0], seg[1] = [...]byte{128, 129, 1, 3}[d.IntN(4)], 0
	}
	if !six {
		b[at+9] = proto
		finish4(b[at:])
	} else {
		putNext6(b[at:], l4-at, proto)
		binary.BigEndian.PutUint16(b[at+4:], uint16(len(b)-at-encap.IPv6Len))
	}
	if proto != 132 {
		seg[field], seg[field+1] = 0, 0
		sum := pseudoSum(b[at:], six, proto, len(seg))
		if proto == encap.ProtoICMP {
			sum = 0
		}
		check := ^fold(sum + plainSum(seg))
		if check == 0 {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(seg[field:], check)
	}
	if proto == encap.ProtoUDP && !six && d.one(8) {
		seg[6], seg[7] = 0, 0
	}
	if (proto == encap.ProtoUDP || proto == encap.ProtoTCP) && d.one(50) {
		// as a device would hand it over that is to fill it in
		binary.BigEndian.PutUint16(seg[field:], fold(pseudoSum(b[at:], six, proto, len(seg))))
	}
	return b
}

// putNext6 writes proto where the last of the extension headers before l4 names what follows.
func putNext6(p []byte, l4 int, proto byte) {
	next, off := 6, encap.IPv6Len
	for off < l4 {
		kind := p[next]
		next = off
		switch kind {
		case 44:
			off += 8
		case 51:
			off += 8 + int(p[off+1])*4
		default:
			off += 8 + int(p[off+1])*8
		}
	}
	p[next] = proto
}

// finish4 makes total length and header checksum of the IPv4 packet p right.
func finish4(p []byte) {
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	sum4(p)
}

// sum4 makes the header checksum of the IPv4 packet p right, if its header is there.
func sum4(p []byte) {
	n := int(p[0]&15) * 4
	if n < encap.IPv4Len || n > len(p) {
		return
	}
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], ^fold(plainSum(p[:n])))
}

// The sums here are plain on purpose: they are not to share a mistake with encap's.

func plainSum(b []byte) (sum uint64) {
	for len(b) >= 8 {
		sum += uint64(b[0])<<8 + uint64(b[1]) + uint64(b[2])<<8 + uint64(b[3]) + uint64(b[4])<<8 + uint64(b[5]) +
			uint64(b[6])<<8 + uint64(b[7])
		b = b[8:]
	}
	for len(b) >= 2 {
		sum += uint64(b[0])<<8 | uint64(b[1])
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// pseudoSum is that of a TCP, UDP or ICMPv6 segment of length bytes in the packet p.
func pseudoSum(p []byte, six bool, proto byte, length int) uint64 {
	addrs := p[12:20]
	if six {
		addrs = p[8:40]
	}
	return plainSum(addrs) + uint64(proto) + uint64(length)
}

// mutate changes b in up to n places, from b[from:] on: bits, bytes, words that mean something, its end. It
// returns b, longer or shorter.
func (d dice) mutate(b []byte, from, n int) []byte {
	for range n {
		if len(b) <= from {
			return b
		}
		i := from + d.IntN(len(b)-from)
		if !d.one(4) { // mostly in headers
			i = from + d.IntN(min(len(b)-from, 110))
		}
		switch d.IntN(8) {
		case 0, 1, 2:
			b[i] ^= 1 << d.IntN(8)
		case 3, 4:
			b[i] = byte(d.Uint32())
		case 5:
			b[i] = [...]byte{0, 1, 0x7f, 0x80, 0xff, 0x45, 0x60, 17}[d.IntN(8)]
		case 6:
			if d.one(2) {
				b = b[:i]
			} else {
				b = append(b, make([]byte, d.IntN(20))...)
			}
		case 7:
			if i+1 < len(b) {
				binary.BigEndian.PutUint16(b[i:], [...]uint16{0, 1, 0xffff, 0x8000, 0x0800, 0x86dd, 0x8100,
					uint16(len(b) - i)}[d.IntN(8)])
			}
		}
	}
	return b
}
