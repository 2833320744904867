package encap

import (
	"errors"
	"fmt"
)

// Lengths of the fixed headers, in bytes.
const (
	IPv4Len     = 20 // without options, RFC 791 §3.1
	IPv6Len     = 40 // without extension headers, RFC 8200 §3
	UDPLen      = 8  // RFC 768
	VXLANLen    = 8  // RFC 7348 §5
	EthernetLen = 14 // untagged, without frame check sequence
)

// These are the bytes that the formats add to an inner packet. VXLANOverhead is only
// the part inside the datagram: VXLAN and inner Ethernet header.
const (
	VXLANOverhead = VXLANLen + EthernetLen
	// MaxOverhead is the largest Overhead of all: the headroom that fits any format.
	MaxOverhead = IPv6Len + UDPLen + VXLANOverhead
)

// These are the smallest MTUs, in bytes, that a path is taken to have: what every IPv4
// host reassembles (RFC 791 §3.1), and what every IPv6 link carries (RFC 8200 §5).
const (
	MinMTU4 = 576
	MinMTU6 = 1280
)

// An inner IPv6 packet of 1280 bytes has to fit every format on a 1500-byte underlay.
const _ uint = 1500 - MaxOverhead - MinMTU6

// UDP destination ports that other nodes expect by default.
const (
	PortIP    = 8285 // flannel's udp backend
	PortVXLAN = 8472 // Linux' own, older than IANA's 4789
)

// Every error of this package wraps one of these.
var (
	// ErrShort means that bytes are missing: b ends before a header does, or
	// before the length that a header claims.
	ErrShort = errors.New("packet too short")
	// ErrMalformed means that a field has a value that the RFC does not allow.
	ErrMalformed = errors.New("packet malformed")
	// ErrTooLong means that a length does not fit the header's 16-bit field.
	ErrTooLong = errors.New("packet too long")
	// ErrNotEligible means that the packet is fine, but that the caller asked for
	// something that must not be done to it.
	ErrNotEligible = errors.New("packet not eligible")
)

// Format says how a datagram carries an inner packet. The zero Format is invalid.
type Format uint8

// The formats.
const (
	_           Format = iota
	FormatIP           // the bare inner packet, as flannel's udp backend sends it
	FormatVXLAN        // VXLAN and Ethernet header before it, RFC 7348
	FormatIPIP         // the bare inner IPv4 packet as the payload of an IPv4 packet, without UDP: RFC 2003
)

// String returns the name that logs and options use.
func (f Format) String() string {
	switch f {
	case FormatIP:
		return "ip"
	case FormatVXLAN:
		return "vxlan"
	case FormatIPIP:
		return "ipip"
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// Overhead returns the bytes that f adds to an inner packet, from the outer IP header on: 28 or 48 (outer
// IPv6) for FormatIP, 50 or 70 for FormatVXLAN, and 20 for FormatIPIP. It is 0 for an invalid format, and for
// FormatIPIP over IPv6.
func (f Format) Overhead(outer6 bool) int {
	ip := IPv4Len
	if outer6 {
		ip = IPv6Len
	}
	switch f {
	case FormatIP:
		return ip + UDPLen
	case FormatVXLAN:
		return ip + UDPLen + VXLANOverhead
	case FormatIPIP:
		if !outer6 {
			return ip
		}
	}
	return 0
}

// InnerMTU returns the length in bytes of the largest inner packet that leaves
// whole over an underlay with the given MTU. It is 0 if none does, or if f is
// invalid, and at most 65535 minus the overhead, which is all that the outer
// header's length field can say (an outer IPv6 header could say 40 more).
func InnerMTU(f Format, underlayMTU int, outer6 bool) int {
	o := f.Overhead(outer6)
	if o == 0 || underlayMTU <= o {
		return 0
	}
	return min(underlayMTU, maxPacket) - o
}

// GSOMaxSize returns the gso_max_size in bytes for a link whose packets enter the
// tunnel. With it, a TCP superpacket of mtu-sized packets leaves in one send with
// UDP_SEGMENT, in which every segment carries f's header inside the datagram and
// all segments share the 65507 bytes of one IPv4 datagram. At the kernel's default
// of 65536 one or two segments would be left over and cost a send of their own. The
// result is 0 if mtu is too small to matter, if f is invalid, or has no UDP to be cut.
func GSOMaxSize(f Format, mtu int) int {
	segment := mtu + f.Overhead(false) - IPv4Len - UDPLen
	if f.Overhead(false) == 0 || f == FormatIPIP || mtu < MinMTU4 {
		return 0
	}
	// The kernel counts payload: it takes 320 bytes off for headers (MAX_TCP_HEADER) and
	// divides by the MSS, which options make up to 72 bytes (IPv6) smaller than the MTU.
	const headers, options = 320, 72
	return (maxPacket-IPv4Len-UDPLen)/segment*(mtu-options) + headers
}

// maxPacket is the largest length that an IPv4 header can state.
const maxPacket = 65535
