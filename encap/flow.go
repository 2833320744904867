package encap

import (
	"encoding/binary"
	"math/bits"
)

// protoSCTP has its ports where TCP and UDP have theirs (RFC 9260 §3.1).
const protoSCTP = 132

// FlowPairHash returns a hash of the addresses, protocol and ports of the packet in b. in is the result of
// ParseInner for b. Both directions of a flow have the same hash, so that a connection's data and
// acknowledgements get the same port or worker. Ports are used only for TCP, UDP and SCTP, and not for
// fragments, so that all fragments have the same hash. Any bits of the hash are equally good for a table
// index or a port. The hash is the same on every machine and not secret: a sender can choose ports so that
// hashes collide.
//
// It returns 0 if b is shorter than in.TotalLen.
func FlowPairHash(b []byte, in Inner) uint32 {
	if in.TotalLen > len(b) {
		return 0
	}
	b = b[:in.TotalLen]
	var from, to uint64
	switch in.Proto {
	case ProtoTCP, ProtoUDP, protoSCTP:
		if in.L4 > 0 && in.L4+4 <= len(b) && !in.Fragment() {
			from = uint64(binary.LittleEndian.Uint16(b[in.L4:])) << 32
			to = uint64(binary.LittleEndian.Uint16(b[in.L4+2:])) << 32
		}
	}
	switch {
	case in.Version == 4 && len(b) >= IPv4Len:
		from = mix((uint64(binary.LittleEndian.Uint32(b[12:]))|from)^mixA, mixB)
		to = mix((uint64(binary.LittleEndian.Uint32(b[16:]))|to)^mixA, mixB)
	case in.Version == 6 && len(b) >= IPv6Len:
		from = mix(binary.LittleEndian.Uint64(b[8:])^mixA, binary.LittleEndian.Uint64(b[16:])^from^mixB)
		to = mix(binary.LittleEndian.Uint64(b[24:])^mixA, binary.LittleEndian.Uint64(b[32:])^to^mixB)
	default:
		return 0
	}
	h := mix((from+to)^mixA, uint64(in.Proto)^mixC)
	return uint32(h ^ h>>32)
}

// Odd numbers with as many ones as zeros in every byte (wyhash's secret).
const (
	mixA = 0xa0761d6478bd642f
	mixB = 0xe7037ed1a0b428db
	mixC = 0x8ebc6af09c88c6e3
)

// mix multiplies to 128 bits and combines the halves by exclusive or, so that every bit of a and b influences
// every bit of the result.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
