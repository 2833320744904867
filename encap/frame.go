package encap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Errors of frames, preallocated.
var (
	errFrameMAC  = fmt.Errorf("ethernet address is a group address: %w", ErrMalformed)
	errFrameType = fmt.Errorf("frame is neither untagged ipv4 nor ipv6: %w", ErrMalformed)
	errFrameUDP  = fmt.Errorf("udp length is not that of the ip payload: %w", ErrMalformed)
)

// maxFrameHeader is the length of an Ethernet, IPv6 and UDP header.
const maxFrameHeader = EthernetLen + IPv6Len + UDPLen

// FrameTemplate is the Ethernet, IP and UDP header of datagrams to one peer by one next hop. The sums of the
// fields that all datagrams share are already computed. [NewFrameTemplate] makes it. It does not change
// afterwards, so any number of goroutines may use it.
type FrameTemplate struct {
	head [maxFrameHeader]byte
	six  bool
	// ip is the folded sum of the IPv4 header in head, and pseudo that of the pseudo header without the length.
	ip, pseudo uint16
}

// NewFrameTemplate returns the header of datagrams from src to dst, in frames from local to remote, which is
// the next hop. IPv4 has DF set. TTL and hop limit are 64, and DSCP and flow label 0.
//
// The error wraps ErrMalformed if the addresses are invalid, 4-in-6 or of different families, or if local or
// remote is a group address. A zero MAC, as a loopback device has, is valid.
func NewFrameTemplate(local, remote MAC, src, dst netip.AddrPort) (FrameTemplate, error) {
	if (local[0]|remote[0])&1 != 0 {
		return FrameTemplate{}, errFrameMAC
	}
	e := Ethernet{Dst: remote, Src: local, Type: EtherTypeIPv4}
	t := FrameTemplate{six: dst.Addr().Is6()}
	if t.six {
		e.Type = EtherTypeIPv6
	}
	b := AppendEthernet(t.head[:0], e)
	b, err := AppendOuter(b, Outer{Src: src, Dst: dst, TTL: 64, DF: true}, 0)
	if err != nil {
		return FrameTemplate{}, err
	}
	udp := b[len(b)-UDPLen:]
	clear(udp[4:]) // length and checksum
	if !t.six {
		ip := b[EthernetLen : EthernetLen+IPv4Len]
		clear(ip[2:4])
		clear(ip[10:12])
		t.ip = Fold(Sum(ip, 0))
	}
	t.pseudo = Fold(PseudoHeaderSum(src.Addr(), dst.Addr(), ProtoUDP, 0))
	return t, nil
}

// Len returns the length of the three headers: 42, or 62 over IPv6.
func (t *FrameTemplate) Len() int {
	if t.six {
		return maxFrameHeader
	}
	return EthernetLen + IPv4Len + UDPLen
}

// MaxPayload returns the largest payloadLen that the length fields of the header can
// hold: 65507, or 65527 over IPv6.
func (t *FrameTemplate) MaxPayload() int {
	if t.six {
		return maxPacket - UDPLen
	}
	return maxPacket - IPv4Len - UDPLen
}

// Put writes the header of a frame to the first [FrameTemplate.Len] bytes of b, and panics if b is shorter.
// payloadLen is the length in bytes of all that follows the header, from 0 to [FrameTemplate.MaxPayload];
// otherwise the header is wrong. For a frame that the kernel or a device segments (USO, or TCP in tunnel GSO)
// it is the length of the whole payload. id is used only for IPv4. With DF set it has no meaning (RFC 6864
// §4.1), but the kernel counts up from it in each segment.
//
// The UDP checksum is 0. With seedUDP it is the pseudo-header sum, as the kernel needs it to complete the
// checksum: for NEEDS_CSUM at the outer UDP header, which USO requires, and for [VNetTunnelCsum]. Over IPv6
// the caller must set seedUDP and one of the two, or complete the checksum with [FinishChecksum]. Receivers
// drop IPv6 datagrams without a checksum (RFC 8200 §8.1).
func (t *FrameTemplate) Put(b []byte, payloadLen int, ecn ECN, id uint16, seedUDP bool) {
	length := UDPLen + payloadLen
	var udp []byte
	if t.six {
		h := (*[maxFrameHeader]byte)(b)
		*h = t.head
		h[EthernetLen+1] = byte(ecn&3) << 4
		binary.BigEndian.PutUint16(h[EthernetLen+4:], uint16(length))
		udp = h[EthernetLen+IPv6Len:]
	} else {
		const n = EthernetLen + IPv4Len + UDPLen
		h := (*[n]byte)(b)
		*h = [n]byte(t.head[:n])
		total := uint16(IPv4Len + length)
		h[EthernetLen+1] = byte(ecn & 3)
		binary.BigEndian.PutUint16(h[EthernetLen+2:], total)
		binary.BigEndian.PutUint16(h[EthernetLen+4:], id)
		sum := uint64(t.ip) + uint64(ecn&3) + uint64(total) + uint64(id)
		binary.BigEndian.PutUint16(h[EthernetLen+10:], ^Fold(sum))
		udp = h[EthernetLen+IPv4Len:]
	}
	binary.BigEndian.PutUint16(udp[4:], uint16(length))
	if seedUDP {
		binary.BigEndian.PutUint16(udp[6:], Fold(uint64(t.pseudo)+uint64(uint16(length))))
	}
}

// Frame has the parsed headers of a received frame. It has no reference to the frame. Offsets are in bytes
// from the frame's start.
type Frame struct {
	Src, Dst netip.AddrPort // of one family, not 4-in-6
	ECN      ECN
	Version  uint8 // of IP: 4 or 6
	// Checksum means that there is a UDP checksum, which may be partial. ParseFrame does not verify it. Over
	// IPv6 there always is one.
	Checksum bool
	L4       int // offset of the UDP header
	From, To int // the UDP payload is b[From:To]
}

// ParseFrame parses the headers of an untagged Ethernet frame with a UDP datagram. It ignores bytes after the
// IP packet, since frames are padded to 60 bytes. In a frame that the kernel has not segmented (USO, or TCP
// in tunnel GSO), both lengths and the payload are those of all datagrams together.
//
// ParseFrame ignores the Ethernet addresses. Dst may be any address: the caller must compare it with its own.
//
// The error wraps ErrShort if b ends before a header, or before the length in the IP header. It wraps
// ErrMalformed for an EtherType other than those of IP, such as a VLAN tag; an invalid IPv4 header or header
// checksum; a fragment; any protocol other than UDP after the IP header; a UDP length that is not that of the
// IP payload; 4-in-6 addresses; and UDP over IPv6 without checksum. ParseFrame skips IPv4 options, but not
// IPv6 extension headers.
func ParseFrame(b []byte) (f Frame, err error) {
	if len(b) < EthernetLen {
		return Frame{}, ErrShort
	}
	switch binary.BigEndian.Uint16(b[12:]) {
	case EtherTypeIPv4:
		err = f.parse4(b)
	case EtherTypeIPv6:
		err = f.parse6(b)
	default:
		err = errFrameType
	}
	if err != nil {
		return Frame{}, err
	}
	return f, nil
}

func (f *Frame) parse4(b []byte) error {
	ip := b[EthernetLen:]
	if len(ip) < IPv4Len {
		return ErrShort
	}
	hlen := int(ip[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case ip[0]>>4 != 4:
		return errFrameType
	case hlen < IPv4Len:
		return errIHL
	case total < hlen:
		return errTotalLen
	case total > len(ip):
		return ErrShort
	case Checksum(ip[:hlen]) != 0:
		return errOuterHeader
	case binary.BigEndian.Uint16(ip[6:])&(flagMF|fragOffset) != 0:
		return errOuterFragment
	case ip[9] != ProtoUDP:
		return errOuterProto
	}
	f.Version, f.ECN = 4, ECN(ip[1]&3)
	f.L4, f.To = EthernetLen+hlen, EthernetLen+total
	return f.udp(b, netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20])))
}

func (f *Frame) parse6(b []byte) error {
	ip := b[EthernetLen:]
	if len(ip) < IPv6Len {
		return ErrShort
	}
	total := IPv6Len + int(binary.BigEndian.Uint16(ip[4:]))
	switch {
	case ip[0]>>4 != 6:
		return errFrameType
	case total > len(ip):
		return ErrShort
	case ip[6] != ProtoUDP:
		return errOuterProto
	}
	src, dst := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	if !sameFamily(src, dst) {
		return errOuterFamily
	}
	f.Version, f.ECN = 6, ECN(ip[1]>>4&3)
	f.L4, f.To = EthernetLen+IPv6Len, EthernetLen+total
	return f.udp(b, src, dst)
}

// udp parses the UDP header at f.L4 of a packet that ends at f.To.
func (f *Frame) udp(b []byte, src, dst netip.Addr) error {
	udp := b[f.L4:f.To]
	if len(udp) < UDPLen || int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
		return errFrameUDP
	}
	f.Checksum = udp[6]|udp[7] != 0
	if f.Version == 6 && !f.Checksum {
		return errUDPZero
	}
	f.From = f.L4 + UDPLen
	f.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(udp[0:]))
	f.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(udp[2:]))
	return nil
}
