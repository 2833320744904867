package tunnel

import (
	"net/netip"

	"weft/encap"
)

// Packet is one slot of a Ring: an inner packet or the datagram that carries it, with its description. It is
// valid until the ring is reset.
type Packet struct {
	state
	// info is what the inner header says, once parse or parseSuper has read it. It is not cleared for another
	// packet, since that would cost each as much as to read the header.
	info encap.Super
}

// state is what renew sets anew in a Packet.
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
	// segSize bytes. 0: it is one packet. segments is how many it stands for.
	segSize, segments int
	// partial: the inner checksum at csumStart+csumOffset holds only the folded sum of
	// the pseudo header, and is still to be filled in. True of every superpacket.
	partial               bool
	csumStart, csumOffset int

	// parsed: Info.Inner is of this packet. All of Info is if cutSize is segSize.
	parsed  bool
	cutSize int

	// What the receiver parses, and the largest datagram payload it takes: egress only.
	recv  Recv
	limit int

	// lane is the source port that the datagram leaves from: 0 is the tunnel's own, the others
	// are for nodes of our kind only.
	lane uint8
	// crowded: one worker reads all that the sender sends, so that the other directions of
	// its flows must not all go to it as well. Ingress only.
	crowded bool

	inner   int // bytes of the inner packet, for the counters
	verdict verdict
}

type verdict uint8

// A verdict is pending, delivered, or verdictDrop + DropReason.
const (
	pending verdict = iota
	delivered
	verdictDrop
)

// reason is why a packet with that verdict is dropped. A port that gave no verdict at all did not take it.
func (v verdict) reason() DropReason {
	if v < verdictDrop {
		return DropClosed
	}
	return DropReason(v - verdictDrop)
}

// dropVerdict is the verdict of a packet that is dropped for r.
func dropVerdict(r DropReason) verdict { return verdictDrop + verdict(r) }

// Bytes is the packet as it stands. borrowed: it belongs to the ring.
func (p *Packet) Bytes() []byte { return p.buf[p.off:p.end] }

// Space is the slot's memory past the headroom, to read a packet into.
// borrowed: it belongs to the ring.
func (p *Packet) Space() []byte { return p.buf[p.off:] }

// Delivered records that WriteBatch passed the packet on.
func (p *Packet) Delivered() { p.verdict = delivered }

// Drop records that WriteBatch dropped the packet for r.
func (p *Packet) Drop(r DropReason) { p.verdict = dropVerdict(r) }

// setLen makes the packet the first n bytes from where it begins.
func (p *Packet) setLen(n int) { p.end = p.off + n }

// strip takes n bytes of headers off.
func (p *Packet) strip(n int) {
	p.off += n
	p.inner = p.end - p.off
	if p.partial {
		p.csumStart -= n
	}
}

// makeHead makes n bytes before the packet a part of the datagram, for headers. borrowed: they belong to the ring.
func (p *Packet) makeHead(n int) []byte {
	p.head = n
	return p.headers()
}

// renew makes p an empty packet with all of its headroom.
func (p *Packet) renew() {
	p.state = state{buf: p.buf, off: Headroom, end: Headroom, segments: 1}
}

// complete fills in a partial checksum, for an edge that cannot say that it is one.
func (p *Packet) complete() {
	if p.partial {
		encap.FinishChecksum(p.Bytes(), p.csumStart, p.csumOffset)
		p.partial = false
	}
}

// parse reads the header of the inner packet, if that has not been done. The result belongs to p.
func (p *Packet) parse() (*encap.Inner, error) {
	if !p.parsed {
		if err := p.info.Inner.Parse(p.Bytes()); err != nil {
			return nil, err
		}
		p.parsed = true
	}
	return &p.info.Inner, nil
}

// parseSuper reads how a superpacket is to be cut, if that has not been done. The result belongs to p. ok is
// false if p is to be dropped for reason r.
func (p *Packet) parseSuper() (super *encap.Super, r DropReason, ok bool) {
	if p.cutSize != p.segSize || p.segSize == 0 {
		in, err := p.parse()
		if err != nil {
			return nil, DropMalformed, false
		}
		if p.info, err = encap.ParseSuper(p.Bytes(), *in, p.segSize); err != nil {
			p.parsed, p.cutSize = false, 0
			return nil, DropMalformed, false
		}
		p.cutSize = p.segSize
	}
	if p.info.Segments > maxSegments {
		return nil, DropSegments, false
	}
	return &p.info, 0, true
}

// isParsed reports whether the inner header has been read.
func (p *Packet) isParsed() bool { return p.parsed }

// repeat describes p as the next packet of the run of TCP that q is of, whose headers are alike.
func (p *Packet) repeat(q *Packet) {
	p.info.Inner, p.parsed, p.cutSize = q.info.Inner, true, 0
	p.partial, p.csumStart, p.csumOffset, p.crowded = true, q.csumStart, q.csumOffset, q.crowded
}

// changed says that a field of the inner header is another now, so that what segments have in common
// is to be summed again.
func (p *Packet) changed() { p.cutSize = 0 }

// recut has p, which is TCP and parsed, cut into packets of at most mtu bytes. Any
// size will do, since TCP does not mind where it is cut. It is false if none fits.
func (p *Packet) recut(mtu int) bool {
	was := p.segSize
	p.segSize = p.info.TotalLen // one segment
	whole, _, ok := p.parseSuper()
	if !ok || whole.HeaderLen >= mtu {
		p.segSize = was
		return false
	}
	p.segSize = mtu - whole.HeaderLen
	p.segments = (whole.TotalLen - whole.HeaderLen + p.segSize - 1) / p.segSize
	whole.SegmentSize, whole.Segments, p.cutSize = p.segSize, max(1, p.segments), p.segSize
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

// segmentOf makes q, which is empty, segment k of the superpacket p.
func (q *Packet) segmentOf(p *Packet, super *encap.Super, k int) {
	b := super.AppendHeader(q.Space()[:0], p.Bytes(), k, false)
	from, to := super.Payload(k)
	b = append(b, p.Bytes()[from:to]...)
	q.end, q.inner = q.off+len(b), len(b)
	q.Outer, q.OuterECN, q.lane, q.crowded = p.Outer, p.OuterECN, p.lane, p.crowded
	q.copyHead(p)
}
