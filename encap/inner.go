package encap

import (
	"fmt"
	"net/netip"
)

// Protocol numbers that this package reads (IANA protocol numbers).
const (
	protoHopByHop = 0
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoIPIP     = 4 // IPv4 in IP, RFC 2003
	ProtoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	ProtoICMPv6   = 58
	protoNone     = 59
	protoDestOpts = 60
	protoMobility = 135
	protoHIP      = 139
	protoShim6    = 140
)

// Errors of ParseInner, preallocated so that an invalid packet allocates nothing.
var (
	errVersion  = fmt.Errorf("ip version is neither 4 nor 6: %w", ErrMalformed)
	errIHL      = fmt.Errorf("ipv4 header length below 20 bytes: %w", ErrMalformed)
	errTotalLen = fmt.Errorf("ipv4 total length below header length: %w", ErrMalformed)
	errFragEnd  = fmt.Errorf("fragment ends beyond 65535 bytes: %w", ErrMalformed)
	errExtChain = fmt.Errorf("ipv6 extension header runs past the packet: %w", ErrMalformed)
)

// Inner has the parsed headers of an inner IP packet. It has no reference to the packet. Lengths and offsets
// are in bytes from the packet's start.
type Inner struct {
	Src, Dst netip.Addr // never 4-in-6 for an IPv4 packet; possibly for an IPv6 one
	Version  uint8      // 4 or 6
	// HeaderLen is the length of the IPv4 header with options, or 40 without IPv6 extension headers.
	HeaderLen int
	// TotalLen is the length in the header, at most len(b). Bytes after it are not part of the packet.
	TotalLen     int
	TrafficClass uint8 // TOS in IPv4: DSCP and ECN
	TTL          uint8 // hop limit in IPv6
	// Proto is the transport protocol. In IPv6 it is the first next-header value that is no extension header, or
	// the first one that was not followed.
	Proto uint8
	// L4 is the offset of the transport header, at most TotalLen. It is 0 if there is none: in a later fragment,
	// without a next header, or after an unknown or overlong chain of extension headers.
	L4 int
	// DF forbids routers to fragment. It is true for every IPv6 packet.
	DF            bool
	MoreFragments bool
	FragOffset    int // offset of this fragment's data in the original packet's data
	// FragID identifies the fragments of one IPv6 packet.
	FragID uint32

	// routed means that an IPv6 routing header has segments left, so that Dst is not the address in the pseudo
	// header (RFC 8200 §8.1).
	routed bool
}

// ECN returns the congestion bits of the traffic class.
func (in Inner) ECN() ECN { return ECN(in.TrafficClass & 3) }

// Fragment reports whether the packet is a fragment.
func (in Inner) Fragment() bool { return in.MoreFragments || in.FragOffset != 0 }

// ParseInner parses the IP header at the start of b, and in IPv6 up to eight extension headers. b may be
// longer than the packet.
//
// The error wraps ErrShort if b ends before the header or before the length in it. It wraps ErrMalformed for
// an invalid version, header length or total length (also of jumbograms), a fragment beyond 65535 bytes, and
// an extension header that exceeds the packet. ParseInner does not verify the IPv4 header checksum.
func ParseInner(b []byte) (Inner, error) {
	var in Inner
	if err := in.Parse(b); err != nil {
		return Inner{}, err
	}
	return in, nil
}

// Parse is [ParseInner] into existing memory, which saves a copy. After an error the fields of in are
// undefined.
func (in *Inner) Parse(b []byte) error {
	if len(b) == 0 {
		return ErrShort
	}
	switch b[0] >> 4 {
	case 4:
		return in.parse4(b)
	case 6:
		return in.parse6(b)
	}
	return errVersion
}

// Repeated reports whether the packet in b has the same length as that in a, and the same IP and TCP headers
// except for the fields that change from one segment to the next. These are the IPv4 identification and
// header checksum, and the TCP sequence number. TCP checksum and options may differ. in is the result of
// Parse for a. Repeated returns false for everything but whole TCP packets with no bytes after them.
func (in *Inner) Repeated(a, b []byte) bool {
	l4 := in.L4
	if in.Proto != ProtoTCP || in.Fragment() || l4 == 0 || len(a) != in.TotalLen || len(b) != len(a) ||
		len(a) < l4+tcpLen {
		return false
	}
	if in.Version == 4 {
		return string(a[:4]) == string(b[:4]) && string(a[6:10]) == string(b[6:10]) &&
			string(a[12:l4+4]) == string(b[12:l4+4]) &&
			string(a[l4+8:l4+tcpLen]) == string(b[l4+8:l4+tcpLen])
	}
	return string(a[:l4+4]) == string(b[:l4+4]) && string(a[l4+8:l4+tcpLen]) == string(b[l4+8:l4+tcpLen])
}
