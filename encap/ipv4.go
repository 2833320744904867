package encap

import (
	"encoding/binary"
	"net/netip"
)

// Bits of the IPv4 flags and fragment offset field (RFC 791 §3.1).
const (
	flagDF     = 0x4000
	flagMF     = 0x2000
	fragOffset = 0x1fff // in units of 8 bytes
)

// parse4 parses an IPv4 header. b is not empty. parse4 sets the fields one by one, because the compiler would
// otherwise build a temporary Inner and copy it.
func (in *Inner) parse4(b []byte) error {
	if len(b) < IPv4Len {
		return ErrShort
	}
	hlen := int(b[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case hlen < IPv4Len:
		return errIHL
	case total < hlen:
		return errTotalLen
	case total > len(b):
		return ErrShort
	}
	frag := binary.BigEndian.Uint16(b[6:])
	in.Src, in.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	in.Version, in.HeaderLen, in.TotalLen, in.L4 = 4, hlen, total, hlen
	in.TrafficClass, in.TTL, in.Proto = b[1], b[8], b[9]
	in.DF, in.MoreFragments, in.FragOffset = frag&flagDF != 0, frag&flagMF != 0, int(frag&fragOffset)*8
	in.routed = false
	if in.FragOffset != 0 {
		in.L4 = 0
		if in.FragOffset+total-hlen > maxPacket {
			return errFragEnd
		}
	}
	return nil
}

// header has the fields of an IP header of either family that outer.go and icmp.go set.
type header struct {
	src, dst     netip.Addr // of one family
	trafficClass uint8
	ttl, proto   uint8
	id           uint16 // IPv4
	df           bool   // IPv4
	flowLabel    uint32 // IPv6, 20 bits
	payloadLen   int    // bytes after the header
}

// appendTo appends the header without options or extension headers. The caller has checked the families and
// lengths.
func (h header) appendTo(dst []byte) []byte {
	if h.dst.Is4() {
		return h.append4(dst)
	}
	return h.append6(dst)
}

func (h header) append4(dst []byte) []byte {
	var b [IPv4Len]byte
	b[0] = 4<<4 | IPv4Len/4
	b[1] = h.trafficClass
	binary.BigEndian.PutUint16(b[2:], uint16(IPv4Len+h.payloadLen))
	binary.BigEndian.PutUint16(b[4:], h.id)
	if h.df {
		binary.BigEndian.PutUint16(b[6:], flagDF)
	}
	b[8], b[9] = h.ttl, h.proto
	src, dest := h.src.As4(), h.dst.As4()
	copy(b[12:], src[:])
	copy(b[16:], dest[:])
	binary.BigEndian.PutUint16(b[10:], Checksum(b[:]))
	return append(dst, b[:]...)
}
