package encap

import (
	"encoding/binary"
	"net/netip"
)

// maxExtHeaders is the maximum number of IPv6 extension headers that are parsed. It bounds the cost of a
// packet that has many. RFC 8200 §4.1 names six, one of them twice.
const maxExtHeaders = 8

// parse6 parses an IPv6 header. b is not empty. It sets the fields one by one, as parse4 does.
func (in *Inner) parse6(b []byte) error {
	if len(b) < IPv6Len {
		return ErrShort
	}
	total := IPv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return ErrShort
	}
	in.Src, in.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	in.Version, in.HeaderLen, in.TotalLen, in.L4 = 6, IPv6Len, total, 0
	in.TrafficClass, in.TTL, in.Proto = b[0]<<4|b[1]>>4, b[7], b[6]
	in.DF, in.MoreFragments, in.FragOffset, in.FragID, in.routed = true, false, 0, 0, false
	if in.Proto == ProtoTCP || in.Proto == ProtoUDP { // nearly every packet
		in.L4 = IPv6Len
		return nil
	}
	return in.walk(b[:total])
}

// walk parses the extension headers of b from in.Proto on. It sets Proto, L4 and the fields of a fragment
// header and a routing header (RFC 8200 §4, RFC 7045 §1.1).
func (in *Inner) walk(b []byte) error {
	at := IPv6Len
	for range maxExtHeaders {
		switch in.Proto {
		case protoNone:
			return nil
		case protoHopByHop, protoRouting, protoDestOpts, protoAH, protoFragment,
			protoMobility, protoHIP, protoShim6:
		default:
			in.L4 = at
			return nil
		}
		if at+8 > len(b) { // every extension header has at least 8 bytes
			return errExtChain
		}
		n, err := in.extHeader(b, at)
		if err != nil {
			return err
		}
		in.Proto = b[at]
		at += n
		if in.FragOffset != 0 {
			return nil // the rest is no header
		}
	}
	return nil
}

// extHeader parses the extension header of type in.Proto at b[at:], which has at least 8 bytes. It returns
// the header's length in bytes.
func (in *Inner) extHeader(b []byte, at int) (int, error) {
	n := 8 + int(b[at+1])*8
	switch in.Proto {
	case protoAH: // RFC 4302 §2.2: in units of 4 bytes, minus 2
		n = 8 + int(b[at+1])*4
	case protoFragment:
		n = 8
		v := binary.BigEndian.Uint16(b[at+2:])
		in.FragOffset = int(v &^ 7)
		in.MoreFragments = v&1 != 0
		in.FragID = binary.BigEndian.Uint32(b[at+4:])
		if in.FragOffset+len(b)-at-n > maxPacket {
			return 0, errFragEnd
		}
	case protoRouting:
		in.routed = in.routed || b[at+3] != 0
	}
	if at+n > len(b) {
		return 0, errExtChain
	}
	return n, nil
}

func (h header) append6(dst []byte) []byte {
	var b [IPv6Len]byte
	binary.BigEndian.PutUint32(b[0:], 6<<28|uint32(h.trafficClass)<<20|h.flowLabel&0xfffff)
	binary.BigEndian.PutUint16(b[4:], uint16(h.payloadLen))
	b[6], b[7] = h.proto, h.ttl
	src, dest := h.src.As16(), h.dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dest[:])
	return append(dst, b[:]...)
}
