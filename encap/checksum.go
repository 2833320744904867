package encap

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Sum adds b, taken as 16-bit big-endian words, to initial in one's complement
// arithmetic (RFC 1071). An odd last byte counts as the high half of a word, so
// only the last of several chained pieces may have an odd length. The result is
// not folded and not inverted: it is an initial for another Sum, or for [Fold].
//
// It adds 64 bits at a time, in the byte order of the commonest machines, since
// the sum of swapped words is the swapped sum (RFC 1071 §2(B)). Two chains of
// additions do not wait for each other's carries. A chain that began without a
// carry ends with one only if its sum is at most 2^64 − 2, so that adding the
// carry does not overflow.
func Sum(b []byte, initial uint64) uint64 {
	var s, t, c uint64
	for len(b) >= 128 {
		p := (*[128]byte)(b)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[0:]), 0)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[24:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[32:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[40:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[48:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(p[56:]), c)
		s += c
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[64:]), 0)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[72:]), c)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[80:]), c)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[88:]), c)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[96:]), c)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[104:]), c)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[112:]), c)
		t, c = bits.Add64(t, binary.LittleEndian.Uint64(p[120:]), c)
		t += c
		b = b[128:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s += c
		b = b[8:]
	}
	var tail uint64 // the last 0 to 7 bytes, zeros behind them
	if len(b) >= 4 {
		tail = uint64(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	var last uint64
	for i, v := range b {
		last |= uint64(v) << (8 * i)
	}
	s, c = bits.Add64(s, tail, 0)
	s, c = bits.Add64(s, last, c)
	s, c = bits.Add64(s, t, c)
	s, c = bits.Add64(uint64(bits.ReverseBytes16(Fold(s+c))), initial, 0)
	return s + c
}

// Fold reduces a sum to 16 bits, with the carries added back in. Only a sum of
// nothing but zeros folds to 0; other multiples of 0xffff fold to 0xffff.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff // 33 bits
	sum = sum>>32 + sum&0xffffffff // 32 bits
	sum = sum>>16 + sum&0xffff     // 17 bits
	return uint16(sum>>16 + sum&0xffff)
}

// Checksum returns the Internet checksum of b (RFC 1071), as it stands in a
// header. Over data that includes a correct checksum it is 0.
func Checksum(b []byte) uint16 { return ^Fold(Sum(b, 0)) }

// Update16 returns what a checksum becomes when one aligned 16-bit word under it
// changes: HC' = ~(~HC + ~m + m'), RFC 1624 equation 3.
func Update16(check, old, new uint16) uint16 {
	return ^Fold(uint64(^check) + uint64(^old) + uint64(new))
}

// PseudoHeaderSum returns the unfolded sum of the pseudo header that TCP and UDP
// checksums include (RFC 768, RFC 9293 §3.1, RFC 8200 §8.1). Both addresses are
// of one family; length is that of transport header and payload, in bytes.
func PseudoHeaderSum(src, dst netip.Addr, proto uint8, length int) uint64 {
	if src.Is4() && dst.Is4() {
		s, d := src.As4(), dst.As4()
		return Sum(s[:], Sum(d[:], pseudoTail(proto, length)))
	}
	s, d := src.As16(), dst.As16()
	return Sum(s[:], Sum(d[:], pseudoTail(proto, length)))
}

// PseudoHeaderSumRaw is PseudoHeaderSum for addresses that lie side by side, as
// in both IP headers: addrs is source and destination, 8 or 32 bytes.
func PseudoHeaderSumRaw(addrs []byte, proto uint8, length int) uint64 {
	return Sum(addrs, pseudoTail(proto, length))
}

// pseudoTail is the part after the addresses. IPv4 has 8 zero bits, protocol and
// a 16-bit length, IPv6 a 32-bit length, 24 zero bits and the next header: the
// sum is the same for every length that IPv4 knows.
func pseudoTail(proto uint8, length int) uint64 {
	return uint64(proto) + uint64(uint32(length))
}
