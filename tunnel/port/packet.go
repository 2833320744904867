package port

import (
	"net/netip"

	"weft/encap"
)

// Packet is one slot of a Ring: an inner packet or the datagram that carries it, with its description. It is
// valid until the ring is reset.
type Packet struct {
	state
	// Info is what the inner header says, once Parse or ParseSuper has read it. It is not cleared for another
	// packet, since that would cost each as much as to read the header.
	Info encap.Super
}

// state is what Renew sets anew in a Packet.
type state struct {
	buf      []byte // the slot's memory: headroom, then up to MaxPacket bytes
	off, end int    // the packet is buf[off:end]
	head     int    // egress: bytes before off that go with it, the headers of format vxlan

	// Outer is the other node's address: where a datagram came from, or where it is
	// to be sent. OuterECN is the outer header's ECN field, either way.
	Outer    netip.AddrPort
	OuterECN encap.ECN
	// Truncated says that the datagram was longer than the slot.
	Truncated bool

	// A superpacket stands for several inner packets: its payload is to be cut every
	// SegSize bytes. 0: it is one packet. Segments is how many it stands for.
	SegSize, Segments int
	// Partial: the inner checksum at CsumStart+CsumOffset holds only the folded sum of
	// the pseudo header, and is still to be filled in. True of every superpacket.
	Partial               bool
	CsumStart, CsumOffset int

	// parsed: Info.Inner is of this packet. All of Info is if cutSize is SegSize.
	parsed  bool
	cutSize int

	// Recv is what the receiver parses, and Limit the largest datagram payload that it takes, in bytes: egress
	// only.
	Recv  Recv
	Limit int

	// Lane is the source port that the datagram leaves from: 0 is the tunnel's own, the others
	// are for nodes of our kind only.
	Lane uint8
	// SingleReader: one worker reads all that the sender sends, so that the other directions of
	// its flows must not all go to it as well. Ingress only.
	SingleReader bool

	Size    int // bytes of the inner packet, for the counters
	Verdict Verdict
}

// Verdict is what became of a packet.
type Verdict uint8

// A verdict is Pending, Delivered, or that of Dropped.
const (
	Pending Verdict = iota
	Delivered
	verdictDrop // and the reason
)

// Reason is why a packet with that verdict is dropped. A port that gave no verdict at all did not take it.
func (v Verdict) Reason() DropReason {
	if v < verdictDrop {
		return DropClosed
	}
	return DropReason(v - verdictDrop)
}

// Dropped is the verdict of a packet that is dropped for r.
func Dropped(r DropReason) Verdict { return verdictDrop + Verdict(r) }

// Bytes is the packet as it stands. borrowed: it belongs to the ring.
func (p *Packet) Bytes() []byte { return p.buf[p.off:p.end] }

// Space is the slot's memory past the headroom, to read a packet into.
// borrowed: it belongs to the ring.
func (p *Packet) Space() []byte { return p.buf[p.off:] }

// Delivered records that WriteBatch passed the packet on.
func (p *Packet) Delivered() { p.Verdict = Delivered }

// Drop records that WriteBatch dropped the packet for r.
func (p *Packet) Drop(r DropReason) { p.Verdict = Dropped(r) }

// SetLen makes the packet the first n bytes from where it begins.
func (p *Packet) SetLen(n int) { p.end = p.off + n }

// Strip takes n bytes of headers off.
func (p *Packet) Strip(n int) {
	p.off += n
	p.Size = p.end - p.off
	if p.Partial {
		p.CsumStart -= n
	}
}

// MakeHead makes n bytes before the packet a part of the datagram, for headers. borrowed: they belong to the
// ring.
func (p *Packet) MakeHead(n int) []byte {
	p.head = n
	return p.headers()
}

// Renew makes p an empty packet with all of its headroom.
func (p *Packet) Renew() {
	p.state = state{buf: p.buf, off: Headroom, end: Headroom, Segments: 1}
}

// Complete fills in a partial checksum, for an edge that cannot say that it is one.
func (p *Packet) Complete() {
	if p.Partial {
		encap.FinishChecksum(p.Bytes(), p.CsumStart, p.CsumOffset)
		p.Partial = false
	}
}

// Parse reads the header of the inner packet, if that has not been done. The result belongs to p.
func (p *Packet) Parse() (*encap.Inner, error) {
	if !p.parsed {
		if err := p.Info.Inner.Parse(p.Bytes()); err != nil {
			return nil, err
		}
		p.parsed = true
	}
	return &p.Info.Inner, nil
}

// ParseSuper reads how a superpacket is to be cut, if that has not been done. The result belongs to p. ok is
// false if p is to be dropped for reason r.
func (p *Packet) ParseSuper() (super *encap.Super, r DropReason, ok bool) {
	if p.cutSize != p.SegSize || p.SegSize == 0 {
		in, err := p.Parse()
		if err != nil {
			return nil, DropMalformed, false
		}
		if p.Info, err = encap.ParseSuper(p.Bytes(), *in, p.SegSize); err != nil {
			p.parsed, p.cutSize = false, 0
			return nil, DropMalformed, false
		}
		p.cutSize = p.SegSize
	}
	if p.Info.Segments > MaxSegments {
		return nil, DropSegments, false
	}
	return &p.Info, 0, true
}

// Parsed reports whether the inner header has been read.
func (p *Packet) Parsed() bool { return p.parsed }

// Repeat describes p as the next packet of the run of TCP that q is of, whose headers are alike.
func (p *Packet) Repeat(q *Packet) {
	p.Info.Inner, p.parsed, p.cutSize = q.Info.Inner, true, 0
	p.Partial, p.CsumStart, p.CsumOffset, p.SingleReader = true, q.CsumStart, q.CsumOffset, q.SingleReader
}

// Changed says that a field of the inner header is another now, so that what segments have in common
// is to be summed again.
func (p *Packet) Changed() { p.cutSize = 0 }

// Recut has p, which is TCP and parsed, cut into packets of at most mtu bytes. Any
// size will do, since TCP does not mind where it is cut. It is false if none fits.
func (p *Packet) Recut(mtu int) bool {
	was := p.SegSize
	p.SegSize = p.Info.TotalLen // one segment
	whole, _, ok := p.ParseSuper()
	if !ok || whole.HeaderLen >= mtu {
		p.SegSize = was
		return false
	}
	p.SegSize = mtu - whole.HeaderLen
	p.Segments = (whole.TotalLen - whole.HeaderLen + p.SegSize - 1) / p.SegSize
	whole.SegmentSize, whole.Segments, p.cutSize = p.SegSize, max(1, p.Segments), p.SegSize
	return true
}

// copyHead gives p the headers of the packet that it is a piece of.
func (p *Packet) copyHead(of *Packet) {
	p.head = of.head
	copy(p.buf[p.off-p.head:p.off], of.headers())
}

// headers are what goes before the inner packet. borrowed: they belong to the ring.
func (p *Packet) headers() []byte { return p.buf[p.off-p.head : p.off] }

// Datagram returns what an underlay sends: the inner packet behind the format's header. borrowed: it belongs
// to the ring.
func (p *Packet) Datagram() []byte { return p.buf[p.off-p.head : p.end] }

// SegmentOf makes p, which is empty, segment k of the superpacket of.
func (p *Packet) SegmentOf(of *Packet, super *encap.Super, k int) {
	b := super.AppendHeader(p.Space()[:0], of.Bytes(), k, false)
	from, to := super.Payload(k)
	b = append(b, of.Bytes()[from:to]...)
	p.end, p.Size = p.off+len(b), len(b)
	p.Outer, p.OuterECN, p.Lane, p.SingleReader = of.Outer, of.OuterECN, of.Lane, of.SingleReader
	p.copyHead(of)
}
