package tunnel

import (
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// deliver carries out d: it queues p, sends it in fragments, or drops it.
func (w *worker) deliver(p *port.Packet, d decision) {
	switch {
	case d.dropped():
		w.dropDecided(p, d)
	case d.limit > 0:
		w.fragment(p, d)
	default:
		if d.to.role == RoleUnderlay {
			w.address(p, d.peer, p.Info.Version, p.Info.ECN())
		}
		w.push(p, send{d.to, d.peer})
	}
}

// dropDecided drops p as decided. It sends the ICMP error, or records the source.
func (w *worker) dropDecided(p *port.Packet, d decision) {
	r, sender := d.reason(), d.peer
	if w.flow == &w.tally.egress {
		sender = nil
	}
	switch {
	case d.drop.icmp != 0:
		w.sendICMPError(d.drop.icmp, d.limit, p.Bytes())
	case r == port.DropForeignSource && d.peer != sender:
		w.forged(&p.Info.Inner, d.peer)
	case r == port.DropUnknownPeer:
		w.strangers.record(p.Outer.Addr(), w.now)
	}
	if d.to != nil && d.to.pod != nil {
		d.to.pod.rx.drops[r].Add(uint64(p.Segments))
	}
	w.drop(p, sender, r)
}

// fragment sends p, or each segment of a UDP superpacket, in fragments.
func (w *worker) fragment(p *port.Packet, d decision) {
	if p.SegSize == 0 {
		if r, ok := w.sendFragments(p, d); !ok {
			w.drop(p, d.peer, r)
		}
		return
	}
	super, r, ok := p.ParseSuper()
	if !ok {
		w.drop(p, d.peer, r)
		return
	}
	q := w.ring.Segment()
	for k := range super.Segments {
		q.Reset()
		q.SegmentOf(p, super, k)
		r, ok := port.DropMalformed, false
		if _, err := q.Parse(); err == nil {
			r, ok = w.sendFragments(q, d)
		}
		if !ok {
			w.drop(q, d.peer, r)
		}
	}
}

// address sets the outer destination of a packet, and puts the format's header before it; format ip has none.
// The inner ECN field is copied to the outer header only if the peer is known to decapsulate it. Others get
// Not-ECT (RFC 6040 section 4.3).
func (w *worker) address(p *port.Packet, peer *Peer, version uint8, ecn encap.ECN) {
	p.Outer = peer.outer(w.engine.cfg.Port)
	p.OuterECN = encap.NotECT
	if peer.ecn {
		p.OuterECN = ecn
	}
	if peer.headerLen > 0 {
		peer.putHeader(p, version)
	}
}

// push queues p in the form that the port accepts.
func (w *worker) push(p *port.Packet, s send) {
	if p.SegSize > 0 && s.to.super == nil {
		w.segment(p, s)
		return
	}
	if p.Partial && p.SegSize == 0 && (s.to.super == nil || !s.to.super.LeavesPartial(p.Recv)) {
		p.Complete()
	}
	w.queue(p, s)
}

// queue queues p unchanged.
func (w *worker) queue(p *port.Packet, s send) {
	w.out = append(w.out, p)
	w.sends = append(w.sends, s)
}

// single returns a batch of only p. It is valid until the next call.
func (w *worker) single(p *port.Packet) []*port.Packet {
	w.one[0] = p
	return w.one[:]
}

// segment writes the segments of a superpacket one by one, for a port that accepts no superpackets.
func (w *worker) segment(p *port.Packet, s send) {
	w.flush() // the packets before p go first
	super, r, ok := p.ParseSuper()
	if !ok {
		w.drop(p, s.peer, r)
		return
	}
	sends := []send{s}
	for k := range super.Segments {
		q := w.ring.Reply()
		q.SegmentOf(p, super, k)
		w.write(w.single(q), sends)
	}
}

// sendFragments sends an IPv4 packet in fragments of at most d.limit bytes (RFC 791 section 3.2). The packet
// is delivered if every fragment is.
func (w *worker) sendFragments(p *port.Packet, d decision) (port.DropReason, bool) {
	in, out, toUnderlay := &p.Info.Inner, d.to, d.to.role == RoleUnderlay
	w.flush() // the packets before p go first
	p.Complete()
	for offset := 0; ; {
		piece := w.ring.Reply()
		b, next, err := encap.Fragment4(piece.Space()[:0], p.Bytes(), d.limit, offset)
		if err != nil {
			return port.DropTooBig, false
		}
		piece.SetLen(len(b))
		piece.Lane = p.Lane
		if toUnderlay {
			w.address(piece, d.peer, in.Version, in.ECN())
		}
		out.port.WriteBatch(w.ring, w.single(piece))
		if piece.Verdict != port.Delivered {
			if out.pod != nil {
				out.pod.rx.drops[piece.Verdict.Reason()].Add(1)
			}
			return piece.Verdict.Reason(), false
		}
		if w.captures != nil && toUnderlay {
			w.captures.datagramSent(w, out, piece, d.peer)
		}
		if offset = next; offset == 0 {
			break
		}
	}
	if w.captures != nil {
		if toUnderlay {
			w.address(p, d.peer, in.Version, in.ECN())
		}
		w.captures.fragmented(w, p, d.peer)
	}
	w.tally.fragmented++
	w.flow.Delivered++
	w.flow.DeliveredBytes += uint64(p.Size)
	w.credit(d.peer, 1, uint64(p.Size))
	if out.pod != nil {
		out.pod.rx.add(1, uint64(p.Size), w.now)
	}
	return 0, true
}

// flush writes the queued packets in order, one run of packets to the same port at a time.
func (w *worker) flush() {
	out, sends := w.out, w.sends
	for len(out) > 0 {
		n := 1
		for n < len(out) && sends[n].to == sends[0].to {
			n++
		}
		w.write(out[:n], sends[:n])
		out, sends = out[n:], sends[n:]
	}
	w.out, w.sends = w.out[:0], w.sends[:0]
}

// write writes a run of packets to one port, and counts them.
func (w *worker) write(ps []*port.Packet, sends []send) {
	out := sends[0].to
	out.port.WriteBatch(w.ring, ps)
	if w.captures != nil {
		w.captures.written(w, ps, sends)
	}
	w.account(ps, sends)
	if out.pod != nil {
		w.creditPod(out.pod, ps)
	}
}

// creditPod counts packets that were written to a pod.
func (w *worker) creditPod(to *pod, ps []*port.Packet) {
	var packets, bytes uint64
	for _, p := range ps {
		if p.Verdict != port.Delivered {
			to.rx.drops[p.Verdict.Reason()].Add(uint64(p.Segments))
			continue
		}
		packets += uint64(p.Segments)
		bytes += uint64(p.Size)
	}
	to.rx.add(packets, bytes, w.now)
}

// account counts the packets of a written run. It adds once for consecutive packets of a peer.
func (w *worker) account(ps []*port.Packet, sends []send) {
	var peer *Peer
	var packets, bytes uint64
	for i, p := range ps {
		if p.Verdict != port.Delivered {
			w.countDrop(p, sends[i].peer, p.Verdict.Reason())
			continue
		}
		w.flow.Delivered += uint64(p.Segments)
		w.flow.DeliveredBytes += uint64(p.Size)
		if sends[i].peer != peer {
			w.credit(peer, packets, bytes)
			peer, packets, bytes = sends[i].peer, 0, 0
		}
		packets += uint64(p.Segments)
		bytes += uint64(p.Size)
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

// drop drops p before it is queued, and shows it to the captures.
func (w *worker) drop(p *port.Packet, peer *Peer, r port.DropReason) {
	w.countDrop(p, peer, r)
	if w.captures != nil {
		w.captures.dropped(w, p, peer, r)
	}
}

// countDrop counts p as dropped. Egress drops are not counted for the peer.
func (w *worker) countDrop(p *port.Packet, peer *Peer, r port.DropReason) {
	w.flow.Drops[r] += uint64(p.Segments)
	if peer != nil && w.flow == &w.tally.ingress {
		peer.state.drops[r].Add(uint64(p.Segments))
	}
}
