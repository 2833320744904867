package encap

import "encoding/binary"

// FlowPairHash is like [FlowHash] with one difference: it is the same in both
// directions of a flow, so that what is chosen by it is chosen alike for a
// connection's data and its acknowledgements.
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
