package encap

import (
	"encoding/binary"
	"fmt"
)

// ECN is the congestion field of an IP header, the two low bits of the traffic
// class (RFC 3168 §5). The values are those on the wire.
type ECN uint8

// The codepoints.
const (
	NotECT ECN = iota // not ECN capable
	ECT1
	ECT0
	CE // congestion experienced
)

// String returns the codepoint's name in the RFC.
func (e ECN) String() string {
	switch e {
	case NotECT:
		return "Not-ECT"
	case ECT1:
		return "ECT(1)"
	case ECT0:
		return "ECT(0)"
	case CE:
		return "CE"
	}
	return fmt.Sprintf("ecn(%d)", uint8(e))
}

// DecapECN returns the ECN field of a packet that leaves the tunnel, from those of its inner and outer
// headers (RFC 6040 §4.2, figure 4). ok is false if the packet must be dropped: the underlay marked
// congestion on a packet whose sender does not support ECN. Only the two low bits of the arguments are used.
//
//	           outer  Not-ECT   ECT(0)    ECT(1)    CE
//	inner Not-ECT     Not-ECT   Not-ECT   Not-ECT   drop
//	inner ECT(0)      ECT(0)    ECT(0)    ECT(1)    CE
//	inner ECT(1)      ECT(1)    ECT(1)    ECT(1)    CE
//	inner CE          CE        CE        CE        CE
func DecapECN(outer, inner ECN) (e ECN, ok bool) {
	outer, inner = outer&3, inner&3
	switch {
	case outer == CE:
		return CE, inner != NotECT
	case inner == ECT0 && outer == ECT1:
		return ECT1, true
	}
	return inner, true
}

// SetECN writes e into the IP header at the start of pkt, and updates the IPv4 header checksum (RFC 1624). It
// does nothing if pkt has no IP header.
func SetECN(pkt []byte, e ECN) {
	if len(pkt) < IPv4Len {
		return
	}
	switch pkt[0] >> 4 {
	case 4:
		old := binary.BigEndian.Uint16(pkt)
		word := old&^3 | uint16(e&3)
		if word == old {
			return
		}
		check := pkt[10:12]
		binary.BigEndian.PutUint16(check, Update16(binary.BigEndian.Uint16(check), old, word))
		pkt[1] = byte(word)
	case 6:
		pkt[1] = pkt[1]&^0x30 | byte(e&3)<<4
	}
}
