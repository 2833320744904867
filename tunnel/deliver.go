package tunnel

import (
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// deliver does what was decided about p: it queues p, sends it in fragments, or counts it as dropped, and
// writes the ICMP error.
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

// dropDecided drops p as decided, and tells its sender and who keeps count of such packets.
func (w *worker) dropDecided(p *port.Packet, d decision) {
	r, sender := d.reason(), d.peer
	if w.flow == &w.tally.egress {
		sender = nil
	}
	switch {
	case d.drop.icmp != 0:
		w.complain(d.drop.icmp, d.limit, p.Bytes())
	case r == port.DropForeignSource && d.peer != sender:
		w.forged(&p.Info.Inner, d.peer)
	case r == port.DropUnknownPeer:
		w.strangers.record(p.Outer.Addr(), w.now)
	}
	if d.to != nil && d.to.pod != nil {
		d.to.pod.rx.drops[r].Add(uint64(p.Segments))
	}
	w.refuse(p, sender, r)
}

// fragment sends p, or each segment of a UDP superpacket, in fragments.
func (w *worker) fragment(p *port.Packet, d decision) {
	if p.SegSize == 0 {
		if r, ok := w.sendFragments(p, d); !ok {
			w.refuse(p, d.peer, r)
		}
		return
	}
	super, r, ok := p.ParseSuper()
	if !ok {
		w.refuse(p, d.peer, r)
		return
	}
	q := w.ring.Segment()
	for k := range super.Segments {
		q.Renew()
		q.SegmentOf(p, super, k)
		r, ok := port.DropMalformed, false
		if _, err := q.Parse(); err == nil {
			r, ok = w.sendFragments(q, d)
		}
		if !ok {
			w.refuse(q, d.peer, r)
		}
	}
}

// address gives a packet its outer destination, and what the format puts before it: in
// format ip nothing. RFC 6040 section 4.3: the inner ECN field is copied out only
// where the far end is known to bring it back in; to others it is Not-ECT.
func (w *worker) address(p *port.Packet, peer *Peer, version uint8, ecn encap.ECN) {
	p.Outer = peer.outer(w.engine.cfg.Port)
	p.OuterECN = encap.NotECT
	if peer.ecn {
		p.OuterECN = ecn
	}
	if peer.headLen > 0 {
		peer.putHead(p, version)
	}
}

// push queues p to be written at the end of the batch, in the form that the port takes.
func (w *worker) push(p *port.Packet, s send) {
	if p.SegSize > 0 && s.to.super == nil {
		w.cut(p, s)
		return
	}
	if p.Partial && p.SegSize == 0 && (s.to.super == nil || !s.to.super.LeavesPartial(p.Recv)) {
		p.Complete()
	}
	w.queue(p, s)
}

// queue has p written as it is.
func (w *worker) queue(p *port.Packet, s send) {
	w.out = append(w.out, p)
	w.sends = append(w.sends, s)
}

// alone makes a batch of p.
func (w *worker) alone(p *port.Packet) []*port.Packet {
	w.one[0] = p
	return w.one[:]
}

// cut writes the segments of a superpacket one by one, for a port that takes no
// superpackets.
func (w *worker) cut(p *port.Packet, s send) {
	w.flush() // keep the order: what came before goes first
	super, r, ok := p.ParseSuper()
	if !ok {
		w.refuse(p, s.peer, r)
		return
	}
	sends := []send{s}
	for k := range super.Segments {
		q := w.ring.Reply()
		q.SegmentOf(p, super, k)
		w.write(w.alone(q), sends)
	}
}

// sendFragments sends an IPv4 packet that permits it in pieces of at most d.limit
// bytes (RFC 791 section 3.2). It is delivered if every piece is.
func (w *worker) sendFragments(p *port.Packet, d decision) (port.DropReason, bool) {
	in, out, leaves := &p.Info.Inner, d.to, d.to.role == RoleUnderlay
	w.flush() // keep the order: what came before goes first
	p.Complete()
	for offset := 0; ; {
		piece := w.ring.Reply()
		b, next, err := encap.Fragment4(piece.Space()[:0], p.Bytes(), d.limit, offset)
		if err != nil {
			return port.DropTooBig, false
		}
		piece.SetLen(len(b))
		piece.Lane = p.Lane
		if leaves {
			w.address(piece, d.peer, in.Version, in.ECN())
		}
		out.port.WriteBatch(w.ring, w.alone(piece))
		if piece.Verdict != port.Delivered {
			if out.pod != nil {
				out.pod.rx.drops[piece.Verdict.Reason()].Add(1)
			}
			return piece.Verdict.Reason(), false
		}
		if w.look != nil && leaves {
			w.look.sent(w, out, piece, d.peer)
		}
		if offset = next; offset == 0 {
			break
		}
	}
	if w.look != nil {
		if leaves {
			w.address(p, d.peer, in.Version, in.ECN())
		}
		w.look.fragmented(w, p, d.peer)
	}
	w.tally.fragmented++
	w.flow.Delivered++
	w.flow.DeliveredBytes += uint64(p.Size)
	w.credit(d.peer, 1, uint64(p.Size))
	if out.pod != nil {
		out.pod.rx.passed(1, uint64(p.Size), w.now)
	}
	return 0, true
}

// flush writes what is queued, in order, in runs to the same port.
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

// write writes a run to one port, and accounts for it.
func (w *worker) write(ps []*port.Packet, sends []send) {
	out := sends[0].to
	out.port.WriteBatch(w.ring, ps)
	if w.look != nil {
		w.look.written(w, ps, sends)
	}
	w.account(ps, sends)
	if out.pod != nil {
		w.handed(out.pod, ps)
	}
}

// handed enters the verdicts of a run that was written to a pod.
func (w *worker) handed(to *pod, ps []*port.Packet) {
	var packets, bytes uint64
	for _, p := range ps {
		if p.Verdict != port.Delivered {
			to.rx.drops[p.Verdict.Reason()].Add(uint64(p.Segments))
			continue
		}
		packets += uint64(p.Segments)
		bytes += uint64(p.Size)
	}
	to.rx.passed(packets, bytes, w.now)
}

// account enters the verdicts of a written run, one addition a peer.
func (w *worker) account(ps []*port.Packet, sends []send) {
	var peer *Peer
	var packets, bytes uint64
	for i, p := range ps {
		if p.Verdict != port.Delivered {
			w.drop(p, sends[i].peer, p.Verdict.Reason())
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

// refuse drops p before it is queued, and shows it to who looks.
func (w *worker) refuse(p *port.Packet, peer *Peer, r port.DropReason) {
	w.drop(p, peer, r)
	if w.look != nil {
		w.look.refused(w, p, peer, r)
	}
}

// drop counts p under r. Packets that we send are not held against the peer.
func (w *worker) drop(p *port.Packet, peer *Peer, r port.DropReason) {
	w.flow.Drops[r] += uint64(p.Segments)
	if peer != nil && w.flow == &w.tally.ingress {
		peer.state.drops[r].Add(uint64(p.Segments))
	}
}
