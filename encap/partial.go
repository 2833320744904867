package encap

import "encoding/binary"

// Where the checksum stands in a transport header, in bytes from its start.
const (
	ChecksumOffsetTCP = 16
	ChecksumOffsetUDP = 6
)

// PartialChecksum says whether the TCP or UDP checksum of the packet in b is
// still to be completed. Linux hands a packet of any size to a virtual device with
// only the folded sum of the pseudo header in the field, not inverted
// (CHECKSUM_PARTIAL), and a plain UDP socket can receive one like that inside a
// datagram. start and offset are what a virtio-net header calls csum_start and
// csum_offset.
//
// in is what ParseInner returned for b. A fragment is never partial, nor a UDP
// packet over IPv4 without checksum, nor one whose UDP length is not that of
// the IP payload, nor an IPv6 packet with segments left in a routing header.
//
// One complete checksum in 65535 equals its pseudo-header sum and is taken for
// a partial one. That does no harm: completing it gives the same value again.
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

// ChecksumOK says whether the TCP or UDP checksum of the packet in b is complete
// and right, or absent in UDP over IPv4. in is what ParseInner returned for b. It is
// false where there is none of these checksums, or none that can be verified: for
// another protocol, a fragment, segments left in a routing header.
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

// FinishChecksum sums b[start:], which includes the seed in the checksum field, and
// stores the inverted sum in the field at start+offset. That is what a virtio-net
// header with NEEDS_CSUM asks for; no other header is read. A second call brings the
// seed back. FinishChecksum returns false, and changes nothing, if the field is not
// inside b.
func FinishChecksum(b []byte, start, offset int) bool {
	if start < 0 || offset < 0 || start > len(b) || len(b)-start < 2 || offset > len(b)-start-2 {
		return false
	}
	check := Checksum(b[start:])
	if check == 0 {
		check = 0xffff // 0 means none in UDP (RFC 768); to TCP they are the same number
	}
	binary.BigEndian.PutUint16(b[start+offset:], check)
	return true
}

// seeded says whether the checksum of the transport header at b[start:] equals
// the pseudo-header sum of the IP packet b. offset is that of the checksum field, and
// so tells which protocol it is.
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
