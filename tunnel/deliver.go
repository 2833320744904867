package tunnel

import (
	"time"

	"weft/encap"
)

// deliver does what was decided about p: it queues p, sends it in fragments, or counts it as dropped, and
// writes the ICMP error.
func (w *worker) deliver(p *Packet, d decision) {
	switch {
	case d.dropped():
		w.dropDecided(p, d)
	case d.limit > 0:
		w.fragment(p, d)
	default:
		if d.peer != nil {
			w.address(p, d.peer, p.info.Version, p.info.ECN())
		}
		w.push(p, d.to)
	}
}

// dropDecided drops p as decided, and tells its sender and who keeps count of such packets.
func (w *worker) dropDecided(p *Packet, d decision) {
	r := d.reason()
	switch {
	case d.drop.icmp != 0:
		w.complain(d.drop.icmp, d.limit, p.Bytes())
	case r == DropForeignSource && d.peer != nil:
		w.forged(&p.info.Inner, d.peer)
	case r == DropUnknownPeer:
		w.strangers.record(p.Outer.Addr(), w.now)
	}
	if d.to != nil && d.to.pod != nil {
		d.to.pod.rx.drops[r].Add(uint64(p.segments))
	}
	w.refuse(p, r)
}

// fragment sends p, or each segment of a UDP superpacket, in fragments.
func (w *worker) fragment(p *Packet, d decision) {
	if p.segSize == 0 {
		if r, ok := w.sendFragments(p, d); !ok {
			w.refuse(p, r)
		}
		return
	}
	super, r, ok := p.parseSuper()
	if !ok {
		w.refuse(p, r)
		return
	}
	q := w.ring.newSegment()
	for k := range super.Segments {
		q.renew()
		q.segmentOf(p, super, k)
		r, ok := DropMalformed, false
		if _, err := q.parse(); err == nil {
			r, ok = w.sendFragments(q, d)
		}
		if !ok {
			w.refuse(q, r)
		}
	}
}

// address gives a packet its outer destination, and what the format puts before it: in
// format ip nothing. RFC 6040 section 4.3: the inner ECN field is copied out only
// where the far end is known to bring it back in; to others it is Not-ECT.
func (w *worker) address(p *Packet, peer *Peer, version uint8, ecn encap.ECN) {
	p.peer = peer
	p.Outer = peer.outer(w.engine.cfg.Port)
	p.OuterECN = encap.NotECT
	if peer.ecn {
		p.OuterECN = ecn
	}
	if peer.headLen > 0 {
		p.putHead(peer, version)
	}
}

// push queues p to be written to out at the end of the batch, in the form that out
// takes.
func (w *worker) push(p *Packet, out *attached) {
	p.out = out
	if p.segSize > 0 && out.super == nil {
		w.cut(p)
		return
	}
	if p.partial && p.segSize == 0 && (out.super == nil || !out.super.leavesPartial(p.recv)) {
		p.complete()
	}
	w.ring.out = append(w.ring.out, p)
}

// cut writes the segments of a superpacket one by one, for a port that takes no
// superpackets.
func (w *worker) cut(p *Packet) {
	w.flush() // keep the order: what came before goes first
	super, r, ok := p.parseSuper()
	if !ok {
		w.refuse(p, r)
		return
	}
	for k := range super.Segments {
		w.ring.newReply().segmentOf(p, super, k)
		w.write(p.out, w.ring.replyOut[:])
	}
}

// segmentOf makes q, which is empty, segment k of the superpacket p.
func (q *Packet) segmentOf(p *Packet, super *encap.Super, k int) {
	b := super.AppendHeader(q.Space()[:0], p.Bytes(), k, false)
	from, to := super.Payload(k)
	b = append(b, p.Bytes()[from:to]...)
	q.end, q.inner = q.off+len(b), len(b)
	q.peer, q.Outer, q.OuterECN, q.lane, q.crowded = p.peer, p.Outer, p.OuterECN, p.lane, p.crowded
	q.copyHead(p)
}

// sendFragments sends an IPv4 packet that permits it in pieces of at most d.limit
// bytes (RFC 791 section 3.2). It is delivered if every piece is.
func (w *worker) sendFragments(p *Packet, d decision) (DropReason, bool) {
	in, out, peer := &p.info.Inner, d.to, d.peer
	w.flush() // keep the order: what came before goes first
	p.complete()
	for offset := 0; ; {
		piece := w.ring.newReply()
		b, next, err := encap.Fragment4(piece.Space()[:0], p.Bytes(), d.limit, offset)
		if err != nil {
			return DropTooBig, false
		}
		piece.end, piece.lane = piece.off+len(b), p.lane
		if peer != nil {
			w.address(piece, peer, in.Version, in.ECN())
		}
		out.port.WriteBatch(w.ring, w.ring.replyOut[:])
		if piece.verdict != delivered {
			if out.pod != nil {
				out.pod.rx.drops[piece.verdict.reason()].Add(1)
			}
			return piece.verdict.reason(), false
		}
		if w.look != nil && peer != nil {
			w.look.sent(w, out, piece)
		}
		if offset = next; offset == 0 {
			break
		}
	}
	if peer == nil {
		peer = p.peer // the sender, on the way in
	} else if w.look != nil {
		w.address(p, peer, in.Version, in.ECN())
	}
	if w.look != nil {
		w.look.fragmented(w, p)
	}
	w.tally.fragmented++
	w.flow.Delivered++
	w.flow.DeliveredBytes += uint64(p.inner)
	w.credit(peer, 1, uint64(p.inner))
	if out.pod != nil {
		out.pod.rx.passed(1, uint64(p.inner), w.now)
	}
	return 0, true
}

// flush writes what is queued, in order, in runs to the same port.
func (w *worker) flush() {
	out := w.ring.out
	for len(out) > 0 {
		n := 1
		for n < len(out) && out[n].out == out[0].out {
			n++
		}
		w.write(out[0].out, out[:n])
		out = out[n:]
	}
	w.ring.out = w.ring.out[:0]
}

// write writes a run to one port, and accounts for it.
func (w *worker) write(out *attached, ps []*Packet) {
	if w.look != nil {
		w.look.before(w, out, ps)
	}
	out.port.WriteBatch(w.ring, ps)
	if w.look != nil {
		w.look.after(w, ps)
	}
	w.account(ps)
	if out.pod != nil {
		w.handed(out.pod, ps)
	}
}

// handed enters the verdicts of a run that was written to a pod.
func (w *worker) handed(to *pod, ps []*Packet) {
	var packets, bytes uint64
	for _, p := range ps {
		if p.verdict != delivered {
			to.rx.drops[p.verdict.reason()].Add(uint64(p.segments))
			continue
		}
		packets += uint64(p.segments)
		bytes += uint64(p.inner)
	}
	to.rx.passed(packets, bytes, w.now)
}

// account enters the verdicts of a written run, one addition a peer.
func (w *worker) account(ps []*Packet) {
	var peer *Peer
	var packets, bytes uint64
	for _, p := range ps {
		if p.verdict != delivered {
			w.drop(p, p.verdict.reason())
			continue
		}
		w.flow.Delivered += uint64(p.segments)
		w.flow.DeliveredBytes += uint64(p.inner)
		if p.peer != peer {
			w.credit(peer, packets, bytes)
			peer, packets, bytes = p.peer, 0, 0
		}
		packets += uint64(p.segments)
		bytes += uint64(p.inner)
	}
	w.credit(peer, packets, bytes)
}

func (w *worker) credit(peer *Peer, packets, bytes uint64) {
	if peer == nil || packets == 0 {
		return
	}
	s := peer.state
	if w.flow == &w.tally.egress {
		s.txPackets.Add(packets)
		s.txBytes.Add(bytes)
		return
	}
	s.rxPackets.Add(packets)
	s.rxBytes.Add(bytes)
	if sec := w.now / int64(time.Second); s.lastRx.Load() != sec {
		s.lastRx.Store(sec)
		w.heard = peer
	}
}

// reason is why a packet with that verdict is dropped. A port that gave
// no verdict at all did not take it.
func (v verdict) reason() DropReason {
	if v < verdictDrop {
		return DropClosed
	}
	return DropReason(v - verdictDrop)
}

// refuse drops p before it is queued, and shows it to who looks.
func (w *worker) refuse(p *Packet, r DropReason) {
	w.drop(p, r)
	if w.look != nil {
		w.look.refused(w, p, r)
	}
}

// drop counts p under r. Packets that we send are not held against the peer.
func (w *worker) drop(p *Packet, r DropReason) {
	w.flow.Drops[r] += uint64(p.segments)
	if p.peer != nil && w.flow == &w.tally.ingress {
		p.peer.state.drops[r].Add(uint64(p.segments))
	}
}
