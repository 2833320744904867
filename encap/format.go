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

// Bytes that the formats add to an inner packet. VXLANOverhead is only the part inside the datagram: the
// VXLAN and the inner Ethernet header.
const (
	VXLANOverhead = VXLANLen + EthernetLen
	// MaxOverhead is the largest Overhead of any format.
	MaxOverhead = IPv6Len + UDPLen + VXLANOverhead
)

// The smallest MTUs of a path, in bytes: MinMTU4 is what every IPv4 host reassembles (RFC 791 §3.1), and
// MinMTU6 what every IPv6 link carries (RFC 8200 §5).
const (
	MinMTU4 = 576
	MinMTU6 = 1280
)

// An inner IPv6 packet of 1280 bytes must fit every format on a 1500-byte underlay.
const _ uint = 1500 - MaxOverhead - MinMTU6

// Default UDP ports of other nodes.
const (
	PortIP    = 8285 // flannel's udp backend
	PortVXLAN = 8472 // Linux' own, older than IANA's 4789
)

// Every error of this package wraps one of these, or is one of these.
var (
	// ErrShort means that bytes are missing: b ends before a header does, or before the length in a header.
	ErrShort = errors.New("packet too short")
	// ErrMalformed means that a field has a value that the RFC does not allow.
	ErrMalformed = errors.New("packet malformed")
	// ErrTooLong means that a length exceeds a 16-bit field.
	ErrTooLong = errors.New("packet too long")
	// ErrNotEligible means that the packet is valid, but that the requested operation is not permitted on it.
	ErrNotEligible = errors.New("packet not eligible")
)

// Format is how a datagram carries an inner packet. The zero Format is invalid.
type Format uint8

// The formats.
const (
	_           Format = iota
	FormatIP           // only the inner packet, as in flannel's udp backend
	FormatVXLAN        // VXLAN and Ethernet header before the packet, RFC 7348
	FormatIPIP         // only the inner IPv4 packet, as the payload of an IPv4 packet without UDP, RFC 2003
)

// String returns the name used in logs and options.
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

// Overhead returns the number of bytes that f adds to an inner packet, including the outer IP header: 28 or
// 48 (outer IPv6) for FormatIP, 50 or 70 for FormatVXLAN, and 20 for FormatIPIP. It returns 0 for an invalid
// format, and for FormatIPIP over IPv6.
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

// InnerMTU returns the size in bytes of the largest inner packet that fits an underlay with the given MTU. It
// returns 0 if no packet fits, or if f is invalid. It returns at most 65535 minus the overhead, although an
// outer IPv6 header could carry 40 bytes more.
func InnerMTU(f Format, underlayMTU int, outer6 bool) int {
	o := f.Overhead(outer6)
	if o == 0 || underlayMTU <= o {
		return 0
	}
	return min(underlayMTU, maxPacket) - o
}

// GSOMaxSize returns the gso_max_size in bytes for a link whose packets enter the tunnel. With it, a TCP
// superpacket of mtu-sized packets leaves in one send with UDP_SEGMENT. Every segment has f's header inside
// the datagram, and all segments share the 65507 bytes of one IPv4 datagram. With the kernel's default of
// 65536, one or two segments would need a second send. GSOMaxSize returns 0 if mtu is less than 576, or if f
// is invalid or has no UDP.
func GSOMaxSize(f Format, mtu int) int {
	segment := mtu + f.Overhead(false) - IPv4Len - UDPLen
	if f.Overhead(false) == 0 || f == FormatIPIP || mtu < MinMTU4 {
		return 0
	}
	// The kernel counts payload: it subtracts 320 bytes for headers (MAX_TCP_HEADER), and divides by the MSS.
	// Options make the MSS up to 72 bytes (IPv6) smaller than the MTU.
	const headers, options = 320, 72
	return (maxPacket-IPv4Len-UDPLen)/segment*(mtu-options) + headers
}

// maxPacket is the largest length in an IPv4 header.
const maxPacket = 65535
