package encap

import (
	"encoding/binary"
	"fmt"
)

// tcpLen is the length of a TCP header without options, in bytes (RFC 9293 §3.1).
const tcpLen = 20

// MaxSegmentHeader is the length in bytes of the longest header that [Super.AppendHeader] appends: IPv4 and
// TCP with all possible options. In IPv6 it leaves at least 20 bytes for extension headers.
const MaxSegmentHeader = 60 + 60

// Bits of the TCP header's bytes 12 and 13 as one word (RFC 9293 §3.1, RFC 3168).
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
	tcpURG
	tcpECE
	tcpCWR
)

// Errors of ParseSuper, preallocated.
var (
	errSegmentSize  = fmt.Errorf("segment size below 1 byte: %w", ErrNotEligible)
	errSuperProto   = fmt.Errorf("neither tcp nor udp to segment: %w", ErrNotEligible)
	errSuperFrag    = fmt.Errorf("fragment to segment: %w", ErrNotEligible)
	errSuperRouted  = fmt.Errorf("ipv6 route with segments left, or no transport header: %w", ErrNotEligible)
	errSuperExt     = fmt.Errorf("ipv6 extension headers too long to segment: %w", ErrNotEligible)
	errSuperL4Short = fmt.Errorf("transport header runs past the packet: %w", ErrMalformed)
	errSuperDoff    = fmt.Errorf("tcp data offset below 20 bytes: %w", ErrMalformed)
	errSuperUDPLen  = fmt.Errorf("udp length is not that of the ip payload: %w", ErrMalformed)
)

// Super describes how to segment an inner packet: a superpacket, or an ordinary packet, which has one
// segment. It has no reference to the packet. It has the sums that all segments share, so that the checksum
// of a segment costs little more than the sum of its payload. [ParseSuper] makes it. Its methods do not
// change it, and are safe for concurrent use.
type Super struct {
	Inner
	HeaderLen   int // IP and transport header, both with options and extensions, in bytes
	SegmentSize int // payload bytes of every segment except the last
	Segments    int // at least 1

	// ipSum, pseudoSum and l4Sum are unfolded sums of the fields that are equal in all segments. fixed computes
	// them.
	ipSum, pseudoSum, l4Sum uint64

	seq   uint32
	flags uint16 // TCP bytes 12 and 13
	id    uint16 // IPv4
}

// ParseSuper prepares to segment the packet in b into segments of segmentSize payload bytes. in is the result
// of ParseInner for b. It verifies no checksum, because those of a superpacket are partial.
//
// The error wraps ErrNotEligible for a segmentSize below 1, a protocol other than TCP and UDP, a fragment,
// and an IPv6 packet with segments left in a route or with headers of more than MaxSegmentHeader bytes. It
// wraps ErrMalformed for a transport header that does not fit or has a wrong length, and ErrShort if b ends
// before in.TotalLen.
func ParseSuper(b []byte, in Inner, segmentSize int) (Super, error) {
	switch {
	case segmentSize < 1:
		return Super{}, errSegmentSize
	case len(b) < in.TotalLen:
		return Super{}, ErrShort
	case in.Fragment():
		return Super{}, errSuperFrag
	case in.Proto != ProtoTCP && in.Proto != ProtoUDP:
		return Super{}, errSuperProto
	case in.routed || in.L4 < in.HeaderLen:
		return Super{}, errSuperRouted
	}
	n, err := transportLen(b[in.L4:in.TotalLen], in.Proto)
	if err != nil {
		return Super{}, err
	}
	if in.L4+n > MaxSegmentHeader {
		return Super{}, errSuperExt
	}
	s := Super{Inner: in, HeaderLen: in.L4 + n, SegmentSize: segmentSize, Segments: 1}
	if payload := in.TotalLen - s.HeaderLen; payload > segmentSize {
		s.Segments = (payload-1)/segmentSize + 1
	}
	s.fixed(b[:s.HeaderLen])
	return s, nil
}

// transportLen returns the length of the transport header at the start of l4, the whole IP payload. proto is
// TCP or UDP.
func transportLen(l4 []byte, proto uint8) (int, error) {
	if proto == ProtoUDP {
		switch {
		case len(l4) < UDPLen:
			return 0, errSuperL4Short
		case int(binary.BigEndian.Uint16(l4[4:])) != len(l4):
			return 0, errSuperUDPLen
		}
		return UDPLen, nil
	}
	if len(l4) < tcpLen {
		return 0, errSuperL4Short
	}
	n := int(l4[12]>>4) * 4
	switch {
	case n < tcpLen:
		return 0, errSuperDoff
	case n > len(l4):
		return 0, errSuperL4Short
	}
	return n, nil
}

// fixed computes the sums shared by all segments: it sums the whole header h, and subtracts the fields that
// vary. One's complement sums permit that.
func (s *Super) fixed(h []byte) {
	if s.Version == 4 {
		s.pseudoSum = PseudoHeaderSumRaw(h[12:20], s.Proto, 0)
		s.id = binary.BigEndian.Uint16(h[4:])
		s.ipSum = Sum(h[:s.L4], without(h[2:4])+without(h[4:6])+without(h[10:12]))
	} else {
		s.pseudoSum = PseudoHeaderSumRaw(h[8:40], s.Proto, 0)
	}
	l4 := h[s.L4:]
	if s.Proto == ProtoUDP {
		s.l4Sum = Sum(l4[:4], s.pseudoSum) // the ports; length and checksum vary
		return
	}
	s.seq = binary.BigEndian.Uint32(l4[4:])
	s.flags = binary.BigEndian.Uint16(l4[12:])
	varies := without(l4[4:6]) + without(l4[6:8]) + without(l4[12:14]) + without(l4[16:18])
	s.l4Sum = Sum(l4, s.pseudoSum+varies)
}

// without returns what to add to a sum to remove the word at the start of b from it.
func without(b []byte) uint64 { return uint64(^binary.BigEndian.Uint16(b)) }

// Payload returns the position of the payload of segment k, from 0 to Segments-1, in the packet: b[from:to].
// It is empty for any other k.
func (s *Super) Payload(k int) (from, to int) {
	if k < 0 || k >= s.Segments {
		return s.TotalLen, s.TotalLen
	}
	from = s.HeaderLen + k*s.SegmentSize
	if k == s.Segments-1 {
		return from, s.TotalLen
	}
	return from, from + s.SegmentSize
}

// SegmentLen returns the length of segment k in bytes, header and payload.
func (s *Super) SegmentLen(k int) int {
	from, to := s.Payload(k)
	return s.HeaderLen + to - from
}

// AppendHeader appends the HeaderLen bytes of the header of segment k, whose payload is at Payload(k). b is
// the packet that s was parsed from. It allocates only if dst lacks capacity. It returns dst unchanged if
// there is no segment k, or if b ends before TotalLen.
//
// The header is the packet's, except for:
//
//   - the lengths and the checksums;
//   - the IPv4 identification, which counts up from the packet's, also with DF;
//   - the TCP sequence number;
//   - FIN and PSH, which only the last segment has, and CWR, which only the first has.
//
// Linux does the same (inet_gso_segment, tcp_gso_segment, __udp_gso_segment), and also copies all IPv4
// options.
//
// The transport checksum is complete. With partial it is only the folded sum of the pseudo header, and
// AppendHeader does not read the payload. If a complete checksum could be 0 or 0xffff, TCP gets 0, unlike in
// skb_checksum_help.
func (s *Super) AppendHeader(dst, b []byte, k int, partial bool) []byte {
	if k < 0 || k >= s.Segments || len(b) < s.TotalLen {
		return dst
	}
	from, to := s.Payload(k)
	at := len(dst)
	dst = append(dst, b[:s.HeaderLen]...)
	h := dst[at:]
	total := s.HeaderLen + to - from
	if s.Version == 4 {
		id := s.id + uint16(k)
		binary.BigEndian.PutUint16(h[2:], uint16(total))
		binary.BigEndian.PutUint16(h[4:], id)
		binary.BigEndian.PutUint16(h[10:], ^Fold(s.ipSum+uint64(total)+uint64(id)))
	} else {
		binary.BigEndian.PutUint16(h[4:], uint16(total-IPv6Len))
	}
	l4, l4len := h[s.L4:], uint64(total-s.L4)
	sum, offset := s.l4Sum+l4len, ChecksumOffsetUDP
	if s.Proto == ProtoTCP {
		offset = ChecksumOffsetTCP
		sum += s.putTCP(l4, k)
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(l4len))
		sum += l4len
	}
	if partial {
		binary.BigEndian.PutUint16(l4[offset:], Fold(s.pseudoSum+l4len))
		return dst
	}
	check := ^Fold(Sum(b[from:to], sum))
	if check == 0 && s.Proto == ProtoUDP {
		check = 0xffff // 0 means no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(l4[offset:], check)
	return dst
}

// NextHeader changes head into the header of segment k. head is the header that AppendHeader appended for
// segment k-1 with partial. It writes only the fields that differ between two full-size segments, of which
// neither is the first or the last: the IPv4 identification and checksum, and the TCP sequence number. For
// any other k it returns false and changes nothing.
func (s *Super) NextHeader(head []byte, k int) bool {
	if k < 2 || k >= s.Segments-1 || len(head) < s.HeaderLen {
		return false
	}
	if s.Version == 4 {
		id := s.id + uint16(k)
		binary.BigEndian.PutUint16(head[4:], id)
		binary.BigEndian.PutUint16(head[10:], ^Fold(s.ipSum+uint64(s.HeaderLen+s.SegmentSize)+uint64(id)))
	}
	if s.Proto == ProtoTCP {
		binary.BigEndian.PutUint32(head[s.L4+4:], s.seq+uint32(k*s.SegmentSize))
	}
	return true
}

// putTCP writes the fields that vary in the TCP header of segment k, and returns their sum.
func (s *Super) putTCP(l4 []byte, k int) uint64 {
	seq, flags := s.seq+uint32(k*s.SegmentSize), s.flags
	if k > 0 {
		flags &^= tcpCWR
	}
	if k < s.Segments-1 {
		flags &^= tcpFIN | tcpPSH
	}
	binary.BigEndian.PutUint32(l4[4:], seq)
	binary.BigEndian.PutUint16(l4[12:], flags)
	return uint64(seq) + uint64(flags) // Fold combines the halves of seq
}
