package tunnel

import (
	"time"

	"weft/encap"
)

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
			to.rx.drops[p.reason()].Add(uint64(p.segments))
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
			w.drop(p, p.reason())
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

// reason is why a packet that was written was not delivered. A port that gave
// no verdict at all did not take it.
func (p *Packet) reason() DropReason {
	if p.verdict < verdictDrop {
		return DropClosed
	}
	return DropReason(p.verdict - verdictDrop)
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
