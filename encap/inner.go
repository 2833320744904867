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

// Errors of ParseInner, made once so that a bad packet costs no allocation.
var (
	errVersion  = fmt.Errorf("ip version is neither 4 nor 6: %w", ErrMalformed)
	errIHL      = fmt.Errorf("ipv4 header length below 20 bytes: %w", ErrMalformed)
	errTotalLen = fmt.Errorf("ipv4 total length below header length: %w", ErrMalformed)
	errFragEnd  = fmt.Errorf("fragment ends beyond 65535 bytes: %w", ErrMalformed)
	errExtChain = fmt.Errorf("ipv6 extension header runs past the packet: %w", ErrMalformed)
)

// Inner is what [Inner.Parse] reads in the headers of an inner IP packet. It holds no
// reference to the packet. Lengths and offsets are in bytes from the packet's start.
type Inner struct {
	Src, Dst netip.Addr // never 4-in-6 for an IPv4 packet; maybe 4-in-6 for an IPv6 one
	Version  uint8      // 4 or 6
	// HeaderLen is the IPv4 header with its options, or 40: extension headers do
	// not count.
	HeaderLen int
	// TotalLen is the length that the header claims, at most len(b). Bytes behind
	// it are no part of the packet; trim to it.
	TotalLen     int
	TrafficClass uint8 // TOS in IPv4: DSCP and ECN
	TTL          uint8 // hop limit in IPv6
	// Proto is the transport protocol. In IPv6 it is the first next-header value
	// that is no extension header, or the first one that was not followed.
	Proto uint8
	// L4 is where the transport header starts, at most TotalLen. It is 0 if there is
	// none to be read: in a later fragment, without a next header, behind an unknown
	// or overlong chain of extension headers.
	L4 int
	// DF forbids routers to fragment. It is true for every IPv6 packet.
	DF            bool
	MoreFragments bool
	FragOffset    int // of this fragment's data in the original packet's
	// FragID identifies the fragments of one packet in IPv6. An IPv4 header has it at a fixed place.
	FragID uint32

	// routed says that an IPv6 routing header has segments left, so that Dst is not
	// the address that transport checksums cover (RFC 8200 §8.1).
	routed bool
}

// ECN returns the congestion bits of the traffic class.
func (in Inner) ECN() ECN { return ECN(in.TrafficClass & 3) }

// Fragment says whether the packet is a part of a larger one.
func (in Inner) Fragment() bool { return in.MoreFragments || in.FragOffset != 0 }

// ParseInner reads the IP header at the start of b, and in IPv6 up to eight
// extension headers. b may be longer than the packet.
//
// The error wraps ErrShort if b ends before the header or before the claimed
// length, and ErrMalformed if a field cannot be right: version, header length,
// total length (jumbograms have none, and are refused), a fragment beyond 65535
// bytes, an extension header that runs past the packet. The IPv4 header
// checksum is not verified.
func ParseInner(b []byte) (Inner, error) {
	var in Inner
	if err := in.Parse(b); err != nil {
		return Inner{}, err
	}
	return in, nil
}

// Parse is [ParseInner] into memory that the caller has, which saves a copy. After an error the
// fields of in mean nothing.
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

// Repeated reports whether the packet in b continues the flow of the one in a: it has the same length, and
// the same IP and TCP header except for the fields that count up from one segment to the next. These are the
// IPv4 identification and header checksum, and the TCP sequence number. TCP options may differ. in is the
// result of Parse for a. Repeated is false for everything but whole TCP packets with nothing behind them.
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
