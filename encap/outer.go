package encap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Errors of the outer headers, preallocated.
var (
	errOuterFamily   = fmt.Errorf("outer addresses of two families, or 4-in-6: %w", ErrMalformed)
	errOuterProto    = fmt.Errorf("outer packet is not udp: %w", ErrMalformed)
	errOuterFragment = fmt.Errorf("outer packet is a fragment: %w", ErrMalformed)
	errOuterHeader   = fmt.Errorf("outer ipv4 header checksum: %w", ErrMalformed)
	errUDPZero       = fmt.Errorf("udp over ipv6 without checksum: %w", ErrMalformed)
)

// Outer has the fields of the outer IP and UDP header of a datagram, in either family.
type Outer struct {
	Src, Dst     netip.AddrPort // of one family, not 4-in-6
	TrafficClass uint8          // DSCP and ECN
	TTL          uint8
	ID           uint16 // IPv4 only
	DF           bool   // IPv4 only; must be set if the inner packet has it (RFC 2003 §3.1)
	FlowLabel    uint32 // IPv6 only, 20 bits
	// Checksum requests a UDP checksum. IPv6 always has one, because receivers drop datagrams without it (RFC
	// 8200 §8.1).
	Checksum bool
}

// AppendOuter appends the IP and UDP header of a datagram with payloadLen bytes of payload.
//
// The UDP checksum is 0 or, if requested, the pseudo-header sum, as the kernel needs it with NEEDS_CSUM. A
// sender without that offload appends the payload, and calls [FinishChecksum] with the start of the UDP
// header and ChecksumOffsetUDP.
//
// The error wraps ErrMalformed if the addresses are invalid, 4-in-6 or of different families, and ErrTooLong
// if the length does not fit. With an error, dst is returned unchanged.
func AppendOuter(dst []byte, o Outer, payloadLen int) ([]byte, error) {
	src, dest := o.Src.Addr(), o.Dst.Addr()
	if !sameFamily(src, dest) {
		return dst, errOuterFamily
	}
	length := UDPLen + payloadLen
	limit := maxPacket
	if dest.Is4() {
		limit -= IPv4Len
	}
	if payloadLen < 0 || length > limit {
		return dst, ErrTooLong
	}
	dst = header{
		src: src, dst: dest, trafficClass: o.TrafficClass, ttl: o.TTL, proto: ProtoUDP,
		id: o.ID, df: o.DF, flowLabel: o.FlowLabel, payloadLen: length,
	}.appendTo(dst)
	var udp [UDPLen]byte
	binary.BigEndian.PutUint16(udp[0:], o.Src.Port())
	binary.BigEndian.PutUint16(udp[2:], o.Dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(length))
	if o.Checksum || dest.Is6() {
		binary.BigEndian.PutUint16(udp[6:], Fold(PseudoHeaderSum(src, dest, ProtoUDP, length)))
	}
	return append(dst, udp[:]...), nil
}

// AppendOuterIPIP appends the header of an IPv4 packet with an inner packet of payloadLen bytes (protocol 4,
// RFC 2003 §3). It ignores the ports, FlowLabel and Checksum of o.
//
// The errors are those of [AppendOuter]. IPv6 addresses are an error.
func AppendOuterIPIP(dst []byte, o Outer, payloadLen int) ([]byte, error) {
	src, dest := o.Src.Addr(), o.Dst.Addr()
	if !src.Is4() || !dest.Is4() {
		return dst, errOuterFamily
	}
	if payloadLen < 0 || IPv4Len+payloadLen > maxPacket {
		return dst, ErrTooLong
	}
	return header{
		src: src, dst: dest, trafficClass: o.TrafficClass, ttl: o.TTL, proto: ProtoIPIP,
		id: o.ID, df: o.DF, payloadLen: payloadLen,
	}.appendTo(dst), nil
}

// sameFamily reports whether a and b are both IPv4, or both IPv6 and not 4-in-6.
func sameFamily(a, b netip.Addr) bool {
	return a.Is4() && b.Is4() || a.Is6() && b.Is6() && !a.Is4In6() && !b.Is4In6()
}
