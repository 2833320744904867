package encap

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Sum adds b, as 16-bit big-endian words, to initial in one's complement arithmetic (RFC 1071). An odd last
// byte is the high half of a word, so only the last of several chained pieces may have an odd length. The
// result is neither folded nor inverted. It is the initial of another Sum, or the argument of [Fold].
//
// Sum adds 64 bits at a time in little-endian order, because the sum of swapped words is the swapped sum (RFC
// 1071 §2(B)). Two chains of additions are independent of each other's carries. A chain that starts without a
// carry ends with one only if its sum is at most 2^64 − 2, so adding the carry cannot overflow.
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
	var tail uint64 // the last 0 to 7 bytes, then zeros
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

// Fold reduces a sum to 16 bits, adding the carries back in. Only a sum of zeros folds to 0; other multiples
// of 0xffff fold to 0xffff.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff // 33 bits
	sum = sum>>32 + sum&0xffffffff // 32 bits
	sum = sum>>16 + sum&0xffff     // 17 bits
	return uint16(sum>>16 + sum&0xffff)
}

// Checksum returns the Internet checksum of b (RFC 1071), as a header has it. Over data that includes a
// correct checksum it returns 0.
func Checksum(b []byte) uint16 { return ^Fold(Sum(b, 0)) }

// Update16 returns the new value of a checksum after one aligned 16-bit word that it covers changed: HC' =
// ~(~HC + ~m + m'), RFC 1624 equation 3.
func Update16(check, old, new uint16) uint16 {
	return ^Fold(uint64(^check) + uint64(^old) + uint64(new))
}

// PseudoHeaderSum returns the unfolded sum of the pseudo header of TCP and UDP checksums (RFC 768, RFC 9293
// §3.1, RFC 8200 §8.1). Both addresses must have the same family. length is that of transport header and
// payload, in bytes.
func PseudoHeaderSum(src, dst netip.Addr, proto uint8, length int) uint64 {
	if src.Is4() && dst.Is4() {
		s, d := src.As4(), dst.As4()
		return Sum(s[:], Sum(d[:], pseudoTail(proto, length)))
	}
	s, d := src.As16(), dst.As16()
	return Sum(s[:], Sum(d[:], pseudoTail(proto, length)))
}

// PseudoHeaderSumRaw is PseudoHeaderSum for adjacent addresses, as in both IP headers. addrs has source and
// destination, 8 or 32 bytes.
func PseudoHeaderSumRaw(addrs []byte, proto uint8, length int) uint64 {
	return Sum(addrs, pseudoTail(proto, length))
}

// pseudoTail returns the sum of the part after the addresses. IPv4 has 8 zero bits, the protocol and a 16-bit
// length; IPv6 has a 32-bit length, 24 zero bits and the next header. The sums are the same for every length
// up to 65535.
func pseudoTail(proto uint8, length int) uint64 {
	return uint64(proto) + uint64(uint32(length))
}
