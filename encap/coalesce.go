package encap

import "encoding/binary"

// MaxUDPSegments is the maximum number of datagrams in one UDP superpacket (UDP_MAX_SEGMENTS in linux/udp.h
// since 6.9; 64 before).
const MaxUDPSegments = 128

// maxRunHeader is the longest header of a packet that can start a run: IPv6
// without extension headers and TCP with all options.
const maxRunHeader = IPv6Len + 60

// Run coalesces packets of one flow, in the order of arrival, into one superpacket. It copies no payload: the
// run has the first packet's header, and the caller has the list of payloads. The superpacket is the first
// packet with the header that Finish patches, followed by the payloads of the packets that joined.
//
// The caller keeps the order within the flow: a packet of the flow that does not join, such as a pure ACK,
// must be sent after the run.
//
// [Super.AppendHeader] segments the superpacket into the packets that joined, byte for byte, except for three
// fields with more than one right value. The identification of IPv4 packets with DF (RFC 6864 §4.1) counts up
// even if it was constant. A TCP checksum of 0xffff becomes 0. A partial transport checksum may become
// complete, and a complete one partial.
//
// The zero Run is idle and ready to use. A Run is not safe for concurrent use.
type Run struct {
	// UDPSegments bounds the datagrams in one superpacket. Zero or less means
	// MaxUDPSegments. TCP is bounded only by the superpacket's length, below 65536
	// bytes.
	UDPSegments int

	gsoType     uint8
	proto       uint8 // partial transport checksum of the first packet
	closed      bool
	partial     bool // the first packet's transport checksum
	df          bool
	segments    int // 0 while idle; nothing else counts then
	l4          int
	headerLen   int
	segmentSize int
	totalLen    int
	pseudoSum   uint64 // of addresses and protocol
	nextSeq     uint32
	flags       uint16             // TCP bytes 12 and 13 of the packet that joined last
	id, idStep  uint16             // IPv4: of the packet that joined last, and from the one before
	head        [maxRunHeader]byte // the first packet's, headerLen bytes
}

// Segments returns how many packets the run has. It is 0 if the run is idle.
func (r *Run) Segments() int { return r.segments }

// TotalLen returns the length of the superpacket so far, in bytes.
func (r *Run) TotalLen() int { return r.totalLen }

// Closed reports whether no further packet can join: the run is full, or its last packet was shorter than the
// first or had PSH. An idle run is closed.
func (r *Run) Closed() bool { return r.closed || r.segments == 0 }

// Start starts a run with the packet in b, if another packet could join it. It discards the previous run. in
// is the result of ParseInner for b, and partial that of PartialChecksum. If Start returns false, the run is
// idle. The caller must then send the packet alone and unchanged, after pending packets of its flow.
//
// Start accepts only TCP and UDP with payload, directly after an IP header without options. It rejects
// fragments; TCP with SYN, FIN, RST, URG, CWR or PSH, or without ACK; and UDP over IPv4 without checksum. It
// also rejects a packet with a wrong IPv4 header checksum or complete transport checksum, because the
// superpacket's would be right and hide the damage.
// right and hide the damage.
func (r *Run) Start(b []byte, in Inner, partial bool) bool {
	r.segments = 0
	if len(b) < in.TotalLen || in.Fragment() || (in.Proto != ProtoTCP && in.Proto != ProtoUDP) {
		return false
	}
	r.l4, r.proto, r.df, r.flags = in.L4, in.Proto, in.DF, 0
	r.gsoType = GSOType(in.Version, in.Proto)
	switch {
	case in.Version == 4 && in.L4 == IPv4Len:
		if Checksum(b[:IPv4Len]) != 0 {
			return false
		}
		r.id = binary.BigEndian.Uint16(b[4:])
		r.pseudoSum = PseudoHeaderSumRaw(b[12:20], in.Proto, 0)
	case in.Version == 6 && in.L4 == IPv6Len:
		r.pseudoSum = PseudoHeaderSumRaw(b[8:40], in.Proto, 0)
	default:
		return false
	}
	l4 := b[in.L4:in.TotalLen]
	n, err := transportLen(l4, in.Proto)
	if err != nil || n == len(l4) || !r.startTransport(l4) || !(partial || r.intact(l4)) {
		return false
	}
	r.headerLen, r.totalLen, r.segmentSize = r.l4+n, in.TotalLen, len(l4)-n
	r.nextSeq += uint32(r.segmentSize)
	copy(r.head[:], b[:r.headerLen])
	r.segments, r.partial = 1, partial
	r.closed = r.full()
	return true
}

// startTransport checks the transport header of the first packet, and sets the TCP fields of r.
func (r *Run) startTransport(l4 []byte) bool {
	if r.proto == ProtoUDP {
		return binary.BigEndian.Uint16(l4[ChecksumOffsetUDP:]) != 0
	}
	r.nextSeq = binary.BigEndian.Uint32(l4[4:])
	r.flags = binary.BigEndian.Uint16(l4[12:])
	const closing = tcpSYN | tcpFIN | tcpRST | tcpURG | tcpCWR | tcpPSH
	return r.flags&(tcpACK|closing) == tcpACK
}

// intact verifies the complete transport checksum of l4, header and payload.
func (r *Run) intact(l4 []byte) bool {
	return Fold(Sum(l4, r.pseudoSum+uint64(len(l4)))) == 0xffff
}

func (r *Run) full() bool {
	limit := r.UDPSegments
	if limit <= 0 {
		limit = MaxUDPSegments
	}
	return r.totalLen >= maxPacket || r.proto == ProtoUDP && r.segments >= limit
}

// Add adds the packet in b to the run as its next segment, if possible. Its payload is then
// b[payloadFrom:in.TotalLen]. in and partial are as in Start. If ok is false, the run is unchanged.
//
// The packet must have:
//
//   - the first packet's headers, including TOS or traffic class, flow label, TTL, DF, acknowledgement,
//     window, ECE and TCP options;
//   - the next sequence number;
//   - in IPv4 the next identification or, with DF, the same one in all packets;
//   - some payload, at most as much as the first packet;
//   - all that Start requires, except that PSH is allowed.
//
// A packet with less payload or with PSH closes the run.
func (r *Run) Add(b []byte, in Inner, partial bool) (payloadFrom int, ok bool) {
	payload := in.TotalLen - r.headerLen
	if r.Closed() || len(b) < in.TotalLen || payload <= 0 ||
		payload > r.segmentSize || r.totalLen+payload > maxPacket || !r.sameHeader(b) {
		return 0, false
	}
	var flags, id uint16
	if in.Version == 4 {
		id = binary.BigEndian.Uint16(b[4:])
		if !r.nextID(id) || Checksum(b[:IPv4Len]) != 0 {
			return 0, false
		}
	}
	l4 := b[r.l4:in.TotalLen]
	switch r.proto {
	case ProtoTCP:
		flags = binary.BigEndian.Uint16(l4[12:])
		ok = binary.BigEndian.Uint32(l4[4:]) == r.nextSeq && (flags^r.flags)&^tcpPSH == 0
	case ProtoUDP:
		ok = int(binary.BigEndian.Uint16(l4[4:])) == len(l4) && binary.BigEndian.Uint16(l4[6:]) != 0
	}
	if !ok || !(partial || r.intact(l4)) {
		return 0, false
	}
	r.idStep = id - r.id
	r.id, r.flags = id, flags
	r.nextSeq += uint32(payload)
	r.totalLen += payload
	r.segments++
	r.closed = payload < r.segmentSize || flags&tcpPSH != 0 || r.full()
	return r.headerLen, true
}

// sameHeader reports whether b has the fields that are equal in all packets of a run. b is longer than the
// run's header. Add checks the other fields.
func (r *Run) sameHeader(b []byte) bool {
	h := r.head[:r.headerLen]
	b = b[:len(h)]
	switch {
	case r.l4 == IPv4Len: // all but length, identification and checksum
		if [2]byte(b) != [2]byte(h) || [4]byte(b[6:]) != [4]byte(h[6:]) || [8]byte(b[12:]) != [8]byte(h[12:]) {
			return false
		}
	case [4]byte(b) != [4]byte(h) || [34]byte(b[6:]) != [34]byte(h[6:]): // all but length
		return false
	}
	b, h = b[r.l4:], h[r.l4:]
	if r.proto == ProtoUDP {
		return [4]byte(b) == [4]byte(h)
	}
	// Ports, acknowledgement, window, urgent pointer, options.
	return [4]byte(b) == [4]byte(h) && [4]byte(b[8:]) == [4]byte(h[8:]) &&
		[2]byte(b[14:]) == [2]byte(h[14:]) && string(b[18:]) == string(h[18:])
}

// nextID reports whether an IPv4 packet with this identification continues the run.
func (r *Run) nextID(id uint16) bool {
	step := id - r.id
	switch {
	case !r.df:
		return step == 1
	case r.segments == 1:
		return step <= 1
	}
	return step == r.idStep
}

// Finish ends the run. head is the first packet or its header, which Finish changes into the superpacket's in
// place. It changes the total or payload length, the UDP length, the IPv4 header checksum and PSH, which is
// the last packet's. The transport checksum becomes the folded pseudo-header sum. Finish returns the
// virtio-net header. If the run has one packet, head stays unchanged, and is described only if its checksum
// is partial.
//
// For an idle run, or if head is shorter than its headers, Finish returns the zero VNetHdr and leaves head
// unchanged.
func (r *Run) Finish(head []byte) VNetHdr {
	n := r.segments
	r.segments = 0
	if n == 0 || len(head) < r.headerLen || n == 1 && !r.partial {
		return VNetHdr{}
	}
	h := VNetHdr{Flags: VNetNeedsCsum, HdrLen: uint16(r.headerLen), CsumStart: uint16(r.l4),
		CsumOffset: ChecksumOffsetTCP}
	if r.proto == ProtoUDP {
		h.CsumOffset = ChecksumOffsetUDP
	}
	if n > 1 {
		h.GSOType, h.GSOSize = r.gsoType, uint16(r.segmentSize)
		r.patch(head[:r.headerLen])
	}
	return h
}

// patch changes the first packet's header into the superpacket's.
func (r *Run) patch(h []byte) {
	if r.l4 == IPv4Len {
		binary.BigEndian.PutUint16(h[2:], uint16(r.totalLen))
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], Checksum(h[:IPv4Len]))
	} else {
		binary.BigEndian.PutUint16(h[4:], uint16(r.totalLen-IPv6Len))
	}
	l4, l4len := h[r.l4:], r.totalLen-r.l4
	seed := Fold(r.pseudoSum + uint64(l4len))
	if r.proto == ProtoUDP {
		binary.BigEndian.PutUint16(l4[4:], uint16(l4len))
		binary.BigEndian.PutUint16(l4[ChecksumOffsetUDP:], seed)
		return
	}
	l4[13] |= uint8(r.flags & tcpPSH)
	binary.BigEndian.PutUint16(l4[ChecksumOffsetTCP:], seed)
}
