package encap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// What is here was written a second time, plainly, so that the tests can compare: no product code needs it.

var errUDPLen = fmt.Errorf("udp length beyond the ip packet or below 8: %w", ErrMalformed)

// parseOuter splits the IP packet in b into the outer headers and the payload
// of the datagram. payload aliases b. IPv6 extension headers and IPv4 options
// are skipped. The UDP checksum is not verified: on a virtual wire it may be
// partial, and what the kernel or the interface has verified need not be done
// again; see [ChecksumOK].
//
// The error wraps ErrShort or ErrMalformed, as that of ParseInner. Malformed
// are also a wrong IPv4 header checksum, a fragment, another protocol than UDP,
// a wrong UDP length, 4-in-6 addresses, and UDP over IPv6 without checksum.
func parseOuter(b []byte) (o Outer, payload []byte, err error) {
	in, err := ParseInner(b)
	if err != nil {
		return Outer{}, nil, err
	}
	b = b[:in.TotalLen]
	switch {
	case !sameFamily(in.Src, in.Dst):
		return Outer{}, nil, errOuterFamily
	case in.Fragment():
		return Outer{}, nil, errOuterFragment
	case in.Proto != ProtoUDP || in.L4 == 0:
		return Outer{}, nil, errOuterProto
	case in.Version == 4 && Checksum(b[:in.HeaderLen]) != 0:
		return Outer{}, nil, errOuterHeader
	case len(b)-in.L4 < UDPLen:
		return Outer{}, nil, ErrShort
	}
	udp := b[in.L4:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	check := binary.BigEndian.Uint16(udp[6:])
	if length < UDPLen || length > len(udp) {
		return Outer{}, nil, errUDPLen
	}
	o = Outer{
		Src:          netip.AddrPortFrom(in.Src, binary.BigEndian.Uint16(udp[0:])),
		Dst:          netip.AddrPortFrom(in.Dst, binary.BigEndian.Uint16(udp[2:])),
		TrafficClass: in.TrafficClass,
		TTL:          in.TTL,
		Checksum:     check != 0,
	}
	if in.Version == 6 {
		if check == 0 {
			return Outer{}, nil, errUDPZero
		}
		o.FlowLabel = binary.BigEndian.Uint32(b) & 0xfffff
	} else {
		o.ID, o.DF = binary.BigEndian.Uint16(b[4:]), in.DF
	}
	return o, udp[UDPLen:length], nil
}

// headerChecksumOK says whether the IPv4 header at the start of b carries the
// right checksum. It is true for IPv6, which has none, and false if the header
// does not fit b.
func headerChecksumOK(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if b[0]>>4 == 6 {
		return len(b) >= IPv6Len
	}
	n := int(b[0]&0xf) * 4
	return b[0]>>4 == 4 && n >= IPv4Len && n <= len(b) && Checksum(b[:n]) == 0
}

// completeChecksum fills in the checksum that PartialChecksum found in b, which
// has been cut to Inner.TotalLen. It looks again, so that a field that is not
// partial, one completed before say, stays as it is. It reports whether it
// wrote.
func completeChecksum(b []byte, start, offset int) bool {
	return seeded(b, start, offset) && FinishChecksum(b, start, offset)
}

// finishOuterChecksum is [FinishChecksum] for the UDP header at b[outer:] of a
// datagram whose inner packet has a partial checksum, and keeps it: start and
// offset say where that is, as [PartialChecksum] returns them, but from the start
// of b. The result is right once the inner checksum is finished, so that the
// payload need not be summed: Linux calls it local checksum offload. Nothing but
// zeros may follow the inner packet. It returns false, and changes nothing, if a
// field is not inside b or the inner one is not behind the outer header.
func finishOuterChecksum(b []byte, outer, start, offset int) bool {
	if outer < 0 || start > len(b) || start-outer < UDPLen || offset < 0 || offset > len(b)-start-2 {
		return false
	}
	// The finished sum of the inner packet is what its seed, the sum of its pseudo
	// header, lacks to 0xffff.
	seed := binary.BigEndian.Uint16(b[start+offset:])
	check := ^Fold(Sum(b[outer:start], uint64(^seed)))
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[outer+ChecksumOffsetUDP:], check)
	return true
}

// headerLen returns the bytes of both headers: 28, or 48 over IPv6.
func (o Outer) headerLen() int { return FormatIP.Overhead(o.Dst.Addr().Is6()) }
