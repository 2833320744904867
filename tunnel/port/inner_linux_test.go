package port

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// ipv4 is an inner packet of size bytes, UDP with checksum 0.
func ipv4Packet(src, dst string, size int) []byte {
	b := make([]byte, size)
	b[0], b[6], b[8], b[9] = 0x45, 0x40, 64, 17
	binary.BigEndian.PutUint16(b[2:], uint16(size))
	s, d := addr(src).As4(), addr(dst).As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[24:], uint16(size-20))
	return b
}

// tcp4 is an inner TCP packet, or superpacket, with a partial checksum.
func tcp4(payload int) []byte {
	b := ipv4Packet("10.1.1.5", "10.1.2.7", 40+payload)
	b[9], b[32], b[33] = encap.ProtoTCP, 5<<4, 0x10 // header of 20 bytes, ACK
	binary.BigEndian.PutUint16(b[24:], 0)           // where ipv4 has UDP's length
	binary.BigEndian.PutUint16(b[34:], 1000)
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	sum := encap.PseudoHeaderSum(addr("10.1.1.5"), addr("10.1.2.7"), encap.ProtoTCP, 20+payload)
	binary.BigEndian.PutUint16(b[36:], encap.Fold(sum))
	return b
}
