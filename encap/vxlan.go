package encap

import (
	"encoding/binary"
	"fmt"
)

// EtherTypes of IP.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
)

// MaxVNI is the largest VXLAN network identifier: it has 24 bits.
const MaxVNI = 1<<24 - 1

// vxlanFlagI means that the VNI is valid (RFC 7348 §5).
const vxlanFlagI = 0x08

// Errors of the VXLAN header, preallocated.
var (
	errVNI      = fmt.Errorf("vxlan vni above 24 bits: %w", ErrMalformed)
	errVXLANNoI = fmt.Errorf("vxlan header without the I flag: %w", ErrMalformed)
)

// MAC is a 48-bit Ethernet address. It is comparable.
type MAC [6]byte

// String returns m as six pairs of hexadecimal digits with colons.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Ethernet is an untagged Ethernet header.
type Ethernet struct {
	Dst, Src MAC
	Type     uint16 // EtherType
}

// AppendEthernet appends the 14 bytes of e.
func AppendEthernet(dst []byte, e Ethernet) []byte {
	dst = append(dst, e.Dst[:]...)
	dst = append(dst, e.Src[:]...)
	return binary.BigEndian.AppendUint16(dst, e.Type)
}

// ParseEthernet splits a frame into header and payload. It does not remove a VLAN tag; Type is then the
// tag's. payload aliases b. The error wraps ErrShort.
func ParseEthernet(b []byte) (e Ethernet, payload []byte, err error) {
	if len(b) < EthernetLen {
		return Ethernet{}, nil, ErrShort
	}
	return Ethernet{
		Dst:  MAC(b[0:6]),
		Src:  MAC(b[6:12]),
		Type: binary.BigEndian.Uint16(b[12:]),
	}, b[EthernetLen:], nil
}

// VXLAN has the headers before the inner packet in a datagram of FormatVXLAN: the VXLAN header and the header
// of the inner Ethernet frame.
type VXLAN struct {
	VNI uint32 // 24 bits
	Ethernet
}

// AppendVXLAN appends the 22 bytes of h with reserved bits 0. The error wraps ErrMalformed if the VNI exceeds
// MaxVNI; dst is then returned unchanged.
func AppendVXLAN(dst []byte, h VXLAN) ([]byte, error) {
	if h.VNI > MaxVNI {
		return dst, errVNI
	}
	dst = append(dst, vxlanFlagI, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, h.VNI<<8)
	return AppendEthernet(dst, h.Ethernet), nil
}

// ParseVXLAN splits the payload of a datagram into both headers and the inner packet, which is IP if Type
// says so. inner aliases b. It ignores reserved bits (RFC 7348 §5).
//
// The error wraps ErrShort, or ErrMalformed if the I flag is not set.
func ParseVXLAN(b []byte) (h VXLAN, inner []byte, err error) {
	if len(b) < VXLANOverhead {
		return VXLAN{}, nil, ErrShort
	}
	if b[0]&vxlanFlagI == 0 {
		return VXLAN{}, nil, errVXLANNoI
	}
	h.VNI = binary.BigEndian.Uint32(b[4:]) >> 8
	h.Ethernet, inner, err = ParseEthernet(b[VXLANLen:])
	return h, inner, err
}
