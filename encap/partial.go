package encap

import "encoding/binary"

// Offset of the checksum in a transport header, in bytes.
const (
	ChecksumOffsetTCP = 16
	ChecksumOffsetUDP = 6
)

// PartialChecksum reports whether the TCP or UDP checksum of the packet in b is partial. Linux passes packets
// to a virtual device with only the folded sum of the pseudo header in the field, not inverted
// (CHECKSUM_PARTIAL). A plain UDP socket can receive such a packet inside a datagram. start and offset are
// csum_start and csum_offset of a virtio-net header.
//
// in is the result of ParseInner for b. These are never partial: fragments, UDP over IPv4 without checksum,
// UDP with a length other than that of the IP payload, and IPv6 packets with segments left in a routing
// header.
//
// One complete checksum in 65535 equals its pseudo-header sum and is taken for partial. That does no harm,
// because completing it gives the same value again.
func PartialChecksum(b []byte, in Inner) (start, offset int, partial bool) {
	if in.L4 == 0 || in.TotalLen > len(b) || in.Fragment() || in.routed {
		return 0, 0, false
	}
	b = b[:in.TotalLen]
	switch in.Proto {
	case ProtoTCP:
		offset = ChecksumOffsetTCP
	case ProtoUDP:
		offset = ChecksumOffsetUDP
	default:
		return 0, 0, false
	}
	if !seeded(b, in.L4, offset) {
		return 0, 0, false
	}
	return in.L4, offset, true
}

// ChecksumOK reports whether the TCP or UDP checksum of the packet in b is complete and right, or absent in
// UDP over IPv4. in is the result of ParseInner for b. It returns false if there is no such checksum, or none
// that can be verified: for other protocols, fragments, and segments left in a routing header.
func ChecksumOK(b []byte, in Inner) bool {
	if in.L4 == 0 || in.TotalLen > len(b) || in.Fragment() || in.routed {
		return false
	}
	l4 := b[in.L4:in.TotalLen]
	switch in.Proto {
	case ProtoTCP:
		if len(l4) < 20 {
			return false
		}
	case ProtoUDP:
		if len(l4) < UDPLen {
			return false
		}
		n := int(binary.BigEndian.Uint16(l4[4:]))
		if n < UDPLen || n > len(l4) {
			return false
		}
		l4 = l4[:n]
		if binary.BigEndian.Uint16(l4[ChecksumOffsetUDP:]) == 0 {
			return in.Version == 4
		}
	default:
		return false
	}
	return Fold(Sum(l4, PseudoHeaderSum(in.Src, in.Dst, in.Proto, len(l4)))) == 0xffff
}

// FinishChecksum sums b[start:], which includes the seed in the checksum field, and stores the inverted sum
// in the field at start+offset. That is the meaning of NEEDS_CSUM in a virtio-net header. It reads no other
// header. A second call restores the seed. FinishChecksum returns false and changes nothing if the field is
// outside of b.
func FinishChecksum(b []byte, start, offset int) bool {
	if start < 0 || offset < 0 || start > len(b) || len(b)-start < 2 || offset > len(b)-start-2 {
		return false
	}
	check := Checksum(b[start:])
	if check == 0 {
		check = 0xffff // 0 means no checksum in UDP (RFC 768); for TCP both are the same number
	}
	binary.BigEndian.PutUint16(b[start+offset:], check)
	return true
}

// seeded reports whether the checksum of the transport header at b[start:] equals the pseudo-header sum of
// the IP packet b. offset is that of the checksum field, and selects TCP or UDP.
func seeded(b []byte, start, offset int) bool {
	if len(b) < IPv4Len || start < 0 || start > len(b) {
		return false
	}
	l4 := b[start:]
	proto := uint8(ProtoTCP)
	switch offset {
	case ChecksumOffsetTCP:
		if len(l4) < 20 {
			return false
		}
	case ChecksumOffsetUDP:
		if len(l4) < UDPLen || int(binary.BigEndian.Uint16(l4[4:])) != len(l4) {
			return false
		}
		proto = ProtoUDP
	default:
		return false
	}
	var addrs []byte
	switch {
	case b[0]>>4 == 4:
		addrs = b[12:20]
	case b[0]>>4 == 6 && len(b) >= IPv6Len:
		addrs = b[8:40]
	default:
		return false
	}
	sum := Fold(PseudoHeaderSumRaw(addrs, proto, len(l4))) // not 0, since proto is not
	return binary.BigEndian.Uint16(l4[offset:]) == sum
}
