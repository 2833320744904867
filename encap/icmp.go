package encap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// ICMPKind is a kind of ICMP error. The zero ICMPKind is invalid.
type ICMPKind uint8

// The kinds, with their types and codes in ICMP (RFC 792, RFC 1191) and ICMPv6 (RFC 4443).
const (
	_                ICMPKind = iota
	ICMPNoRoute               // type 3 code 0 · type 1 code 0
	ICMPTooBig                // type 3 code 4 · type 2 code 0, with the next hop's MTU
	ICMPTimeExceeded          // type 11 code 0 · type 3 code 0
)

const (
	icmpLen = 8 // type, code, checksum, and four bytes that depend on the type
	icmpTTL = 64
	// tosInternetworkControl is the precedence of ICMP errors, RFC 1812 §4.3.2.5.
	tosInternetworkControl = 0xc0
)

// Errors of AppendICMPError, preallocated.
var (
	errICMPKind   = fmt.Errorf("unknown icmp kind: %w", ErrMalformed)
	errICMPFamily = fmt.Errorf("icmp source of another family than the packet: %w", ErrMalformed)
)

// String returns the name that counters use.
func (k ICMPKind) String() string {
	switch k {
	case ICMPNoRoute:
		return "no-route"
	case ICMPTooBig:
		return "too-big"
	case ICMPTimeExceeded:
		return "time-exceeded"
	}
	return fmt.Sprintf("icmp(%d)", uint8(k))
}

// AppendICMPError appends an IP packet with an ICMP error from src to the source of the packet offending. It
// quotes as much of offending as fits 576 bytes (RFC 1812 §4.3.2.3), or 1280 for IPv6 (RFC 4443 §2.4(c)). mtu
// is the MTU in bytes that ICMPTooBig reports; other kinds ignore it. offending must not overlap the free
// space of dst.
//
// The error wraps ErrNotEligible if offending must not be answered: it is, or may be, an ICMP error or
// redirect; it is a later fragment; it has a martian, multicast or broadcast address (RFC 1122 §3.2.2, RFC
// 4443 §2.4(e) without its exceptions for multicast); or its IPv4 header checksum is wrong (RFC 1812
// §4.3.2.7). It wraps ErrShort or ErrMalformed if offending is invalid, and ErrMalformed if k is invalid or
// src has another family. With an error, dst is returned unchanged.
func AppendICMPError(dst []byte, k ICMPKind, src netip.Addr, mtu int, offending []byte) ([]byte, error) {
	in, err := ParseInner(offending)
	if err != nil {
		return dst, err
	}
	offending = offending[:in.TotalLen]
	if !mayAnswer(offending, in) {
		return dst, ErrNotEligible
	}
	if !sameFamily(src, in.Src) {
		return dst, errICMPFamily
	}
	h := header{src: src, dst: in.Src, ttl: icmpTTL, proto: ProtoICMPv6}
	limit := MinMTU6 - IPv6Len - icmpLen
	pseudo := true
	if in.Version == 4 {
		h.proto, h.trafficClass, h.df = ProtoICMP, tosInternetworkControl, true
		limit = MinMTU4 - IPv4Len - icmpLen
		pseudo = false
	}
	head, ok := k.header(in.Version, mtu)
	if !ok {
		return dst, errICMPKind
	}
	quote := offending[:min(len(offending), limit)]
	h.payloadLen = icmpLen + len(quote)
	dst = h.appendTo(dst)
	at := len(dst)
	dst = append(dst, head[:]...)
	dst = append(dst, quote...)
	var sum uint64
	if pseudo {
		sum = PseudoHeaderSum(h.src, h.dst, h.proto, h.payloadLen)
	}
	binary.BigEndian.PutUint16(dst[at+2:], ^Fold(Sum(dst[at:], sum)))
	return dst, nil
}

// header returns the first 8 bytes of the message, with checksum 0.
func (k ICMPKind) header(version uint8, mtu int) (h [icmpLen]byte, ok bool) {
	v4 := version == 4
	switch k {
	case ICMPNoRoute:
		h[0] = 1
		if v4 {
			h[0] = 3
		}
	case ICMPTooBig:
		h[0] = 2
		if v4 {
			h[0], h[1] = 3, 4
			mtu = min(mtu, maxPacket) // the upper two bytes are unused, RFC 1191 §4
		}
		binary.BigEndian.PutUint32(h[4:], uint32(max(0, mtu)))
	case ICMPTimeExceeded:
		h[0] = 3
		if v4 {
			h[0] = 11
		}
	default:
		return h, false
	}
	return h, true
}

// mayAnswer reports whether an ICMP error about the packet b may be sent.
func mayAnswer(b []byte, in Inner) bool {
	switch {
	case MartianSource(in.Src), MartianDestination(in.Dst), in.FragOffset != 0:
		return false
	case in.Version == 4 && Checksum(b[:in.HeaderLen]) != 0:
		return false
	case in.L4 == 0:
		return in.Proto == protoNone // otherwise it may be an ICMP error
	case in.Version == 4 && in.Proto == ProtoICMP:
		return in.L4 < len(b) && !icmp4Error(b[in.L4])
	case in.Version == 6 && in.Proto == ProtoICMPv6:
		return in.L4 < len(b) && b[in.L4] >= 128 && b[in.L4] != 137 // informational, no redirect
	}
	return true
}

// icmp4Error reports whether an ICMP type is an error or a redirect (RFC 1122 §3.2.2).
func icmp4Error(t uint8) bool {
	switch t {
	case 3, 4, 5, 11, 12:
		return true
	}
	return false
}
