package port

import (
	"net/netip"

	"weft/encap"
)

// Packet is one slot of a Ring: an inner packet or the datagram that carries it, and its description. It is
// valid until the ring is reset.
type Packet struct {
	state
	// Info describes the inner header, once Parse or ParseSuper has parsed it. It is not cleared for the next
	// packet, because clearing costs as much as parsing.
	Info encap.Super
}

// state is the part of a Packet that Reset resets.
type state struct {
	buf      []byte // the slot's memory: headroom, then up to MaxPacket bytes
	off, end int    // the packet is buf[off:end]
	prefix   int    // egress: bytes before off that belong to the datagram, the headers of format vxlan

	// Outer is the other node's address: the source of a datagram that was received, or the destination of one
	// to send. OuterECN is the outer header's ECN field.
	Outer    netip.AddrPort
	OuterECN encap.ECN
	// Truncated means that the datagram was longer than the slot.
	Truncated bool

	// SegSize is the segment size of a superpacket's payload in bytes, or 0 for a single packet. Segments is the
	// number of packets that it stands for.
	SegSize, Segments int
	// Partial means that the inner checksum at CsumStart+CsumOffset has only the folded sum of the pseudo
	// header. It is true for every superpacket.
	Partial               bool
	CsumStart, CsumOffset int

	// parsed means that Info.Inner is this packet's. The rest of Info is, too, if parsedSegSize is SegSize.
	parsed        bool
	parsedSegSize int

	// Recv is what the receiver can parse, and Limit the largest payload of a datagram to it, in bytes. Egress
	// only.
	Recv  Recv
	Limit int

	// Lane selects the source port of the datagram. 0 is the tunnel's own port. Only weft peers get others.
	Lane uint8
	// SingleReader means that one worker reads all datagrams of the sender. The reverse directions of its flows
	// should then be spread over all workers. Ingress only.
	SingleReader bool

	Size    int // length of the inner packet, for the counters
	Verdict Verdict
}

// Verdict is the result of handling a packet.
type Verdict uint8

// A verdict is Pending, Delivered, or a value that Dropped returns.
const (
	Pending Verdict = iota
	Delivered
	verdictDrop // plus the reason
)

// Reason returns the drop reason of the verdict. For a packet without a verdict it is DropClosed.
func (v Verdict) Reason() DropReason {
	if v < verdictDrop {
		return DropClosed
	}
	return DropReason(v - verdictDrop)
}

// Dropped returns the verdict of a packet that was dropped for r.
func Dropped(r DropReason) Verdict { return verdictDrop + Verdict(r) }

// Bytes returns the packet. borrowed: the ring owns the bytes.
func (p *Packet) Bytes() []byte { return p.buf[p.off:p.end] }

// Space returns the slot's memory after the headroom, to read a packet into. borrowed: the ring owns it.
func (p *Packet) Space() []byte { return p.buf[p.off:] }

// Delivered sets the verdict to Delivered.
func (p *Packet) Delivered() { p.Verdict = Delivered }

// Drop sets the verdict to Dropped(r).
func (p *Packet) Drop(r DropReason) { p.Verdict = Dropped(r) }

// SetLen truncates or extends the packet to n bytes.
func (p *Packet) SetLen(n int) { p.end = p.off + n }

// Strip removes n bytes of headers.
func (p *Packet) Strip(n int) {
	p.off += n
	p.Size = p.end - p.off
	if p.Partial {
		p.CsumStart -= n
	}
}

// Prepend adds n bytes before the packet to the datagram, for headers. borrowed: the ring owns them.
func (p *Packet) Prepend(n int) []byte {
	p.prefix = n
	return p.prefixBytes()
}

// Reset makes p an empty packet with all of its headroom.
func (p *Packet) Reset() {
	p.state = state{buf: p.buf, off: Headroom, end: Headroom, Segments: 1}
}

// Complete fills in a partial checksum, for a port that cannot describe one.
func (p *Packet) Complete() {
	if p.Partial {
		encap.FinishChecksum(p.Bytes(), p.CsumStart, p.CsumOffset)
		p.Partial = false
	}
}

// Parse parses the inner header if that was not done before. p owns the result.
func (p *Packet) Parse() (*encap.Inner, error) {
	if !p.parsed {
		if err := p.Info.Inner.Parse(p.Bytes()); err != nil {
			return nil, err
		}
		p.parsed = true
	}
	return &p.Info.Inner, nil
}

// ParseSuper parses how to segment a superpacket, if that was not done before. p owns the result. If ok is
// false, drop p for reason r.
func (p *Packet) ParseSuper() (super *encap.Super, r DropReason, ok bool) {
	if p.parsedSegSize != p.SegSize || p.SegSize == 0 {
		in, err := p.Parse()
		if err != nil {
			return nil, DropMalformed, false
		}
		if p.Info, err = encap.ParseSuper(p.Bytes(), *in, p.SegSize); err != nil {
			p.parsed, p.parsedSegSize = false, 0
			return nil, DropMalformed, false
		}
		p.parsedSegSize = p.SegSize
	}
	if p.Info.Segments > MaxSegments {
		return nil, DropSegments, false
	}
	return &p.Info, 0, true
}

// Parsed reports whether the inner header was parsed.
func (p *Packet) Parsed() bool { return p.parsed }

// Repeat describes p as the packet after q in the same TCP flow, with the same headers.
func (p *Packet) Repeat(q *Packet) {
	p.Info.Inner, p.parsed, p.parsedSegSize = q.Info.Inner, true, 0
	p.Partial, p.CsumStart, p.CsumOffset, p.SingleReader = true, q.CsumStart, q.CsumOffset, q.SingleReader
}

// HeaderChanged records that a field of the inner header changed, so that the sums shared by all segments are
// computed again.
func (p *Packet) HeaderChanged() { p.parsedSegSize = 0 }

// Resegment sets SegSize so that no segment of p, a parsed TCP packet, exceeds mtu bytes. TCP permits any
// segment size. Resegment returns false if even the headers do not fit.
func (p *Packet) Resegment(mtu int) bool {
	was := p.SegSize
	p.SegSize = p.Info.TotalLen // one segment
	whole, _, ok := p.ParseSuper()
	if !ok || whole.HeaderLen >= mtu {
		p.SegSize = was
		return false
	}
	p.SegSize = mtu - whole.HeaderLen
	p.Segments = (whole.TotalLen - whole.HeaderLen + p.SegSize - 1) / p.SegSize
	whole.SegmentSize, whole.Segments, p.parsedSegSize = p.SegSize, max(1, p.Segments), p.SegSize
	return true
}

// copyPrefix copies the headers before a packet to one of its segments.
func (p *Packet) copyPrefix(of *Packet) {
	p.prefix = of.prefix
	copy(p.buf[p.off-p.prefix:p.off], of.prefixBytes())
}

// prefixBytes returns the headers before the inner packet. borrowed: the ring owns them.
func (p *Packet) prefixBytes() []byte { return p.buf[p.off-p.prefix : p.off] }

// Datagram returns the payload of an outer datagram: the inner packet after the format's headers. borrowed:
// the ring owns the bytes.
func (p *Packet) Datagram() []byte { return p.buf[p.off-p.prefix : p.end] }

// SegmentOf makes p, which is empty, segment k of the superpacket of.
func (p *Packet) SegmentOf(of *Packet, super *encap.Super, k int) {
	b := super.AppendHeader(p.Space()[:0], of.Bytes(), k, false)
	from, to := super.Payload(k)
	b = append(b, of.Bytes()[from:to]...)
	p.end, p.Size = p.off+len(b), len(b)
	p.Outer, p.OuterECN, p.Lane, p.SingleReader = of.Outer, of.OuterECN, of.Lane, of.SingleReader
	p.copyPrefix(of)
}
