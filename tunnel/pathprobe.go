package tunnel

import (
	"time"

	"weft/encap"
	"weft/tunnel/pathmtu"
	"weft/tunnel/port"
)

const (
	// checkProbes is how many probes of each size a check sends at once, so that one lost proves nothing.
	checkProbes = 3
	// floodGap is the least time between two lines about a flood of errors.
	floodGap = time.Minute
)

// onSendError takes in what the network said about a datagram that we sent. Only
// a peer's path is learnt: the kernel has matched the quoted ports with ours. Anybody can know these, so
// the claim is checked by probes if the peer answers them, and otherwise taken for true within limits.
func (w *worker) onSendError(e port.SendError) {
	peer := w.table.senders[e.Dst]
	if peer == nil || peer.spec.Addr != e.Dst {
		return
	}
	if e.Why != 0 {
		w.refused(peer, e)
	}
	if !e.TooBig {
		return
	}
	path, sent := &peer.state.path, min(peer.linkMTU, peer.maxSize+peer.cost)
	if peer.probes {
		if c, ok := path.Doubt(e.Dst, e.MTU, sent, peer.cost, w.now); ok {
			w.check(peer, c)
		}
		return
	}
	if !path.Learn(e.Dst, e.MTU, sent, w.now) {
		return
	}
	if n, ok := w.saying.may(w.now); ok {
		w.engine.log.Info("path MTU lowered by a packet-too-big message", "event", port.EventPathMTU,
			"peer", peer.spec.Name, "addr", e.Dst, "mtu", path.Get(w.now), "inner", peer.maxInner(w.now),
			"left_out", n)
	}
}

// deaf says that a flood of errors is not looked at. It is no news more often than each floodGap: it may last
// for hours.
func (w *worker) deaf() {
	if w.now-w.deafSaid < int64(floodGap) {
		return
	}
	w.deafSaid = w.now
	if n, ok := w.saying.may(w.now); ok {
		w.engine.log.Warn("a flood of ICMP errors about our datagrams: most are dropped unread, so that packets "+
			"have their turn",
			"read_at_most", port.MostErrors, "each", port.ErrorWindow, "left_out", n)
	}
}

// check sends the probes of c, and concludes it when their answers have had time.
func (w *worker) check(peer *Peer, c pathmtu.Check) {
	for range checkProbes {
		for _, size := range c.Sizes() {
			w.probe(peer, encap.Probe{Token: c.Token}, size-c.Cost)
		}
	}
	e := w.engine
	time.AfterFunc(pathmtu.AnswerTime, func() { // touches the peer's state only, which nothing has to outlive
		changed, proven := peer.state.path.Conclude(c.Token, e.now())
		if !changed {
			return
		}
		if n, ok := e.saying.may(e.now()); ok {
			e.log.Info("path MTU lowered by a packet-too-big message", "event", port.EventPathMTU, "proven", proven,
				"peer", peer.spec.Name, "addr", peer.spec.Addr, "mtu", peer.state.path.Get(e.now()), "inner",
				peer.maxInner(e.now()), "left_out", n)
		}
	})
}

// probe sends a probe or an answer to the peer, in length bytes. One that cannot be sent is one that is lost.
func (w *worker) probe(peer *Peer, p encap.Probe, length int) {
	under := w.set.under(peer)
	if under == nil || length < encap.ProbeLen || length > port.MaxPacket {
		return
	}
	d := w.ring.Reply()
	b := encap.AppendProbe(d.Space()[:0], p)
	b = append(b, encap.Padding(length-len(b))...)
	d.SetLen(len(b))
	d.Outer = peer.outer(w.engine.cfg.Port)
	if w.look != nil {
		w.look.sent(w, under, d, peer)
	}
	under.port.WriteBatch(w.ring, w.alone(d))
}

// probed takes in a datagram of peer that holds no packet: a probe, which it answers, or an answer. false
// says that it is neither. No more is answered than asked for, and only to peers.
func (w *worker) probed(peer *Peer, p *port.Packet) bool {
	datagram := p.Bytes()
	if peer == nil || !peer.probes || w.table.format == encap.FormatVXLAN {
		return false
	}
	q, err := encap.ParseProbe(datagram)
	if err != nil {
		return false
	}
	switch {
	case !q.Answer:
		if w.answers.take(w.now) {
			w.probe(peer, encap.Probe{Answer: true, Length: uint16(len(datagram)), Token: q.Token}, encap.ProbeLen)
		}
	case w.engine.runs.answered(peer.state, q.Token, int(q.Length)):
	case peer.state.path.Answered(q.Token, int(q.Length), w.now):
		if n, ok := w.saying.may(w.now); ok {
			w.engine.log.Warn("a packet-too-big message was wrong or forged: larger datagrams arrive", "event",
				port.EventPathMTU, "peer", peer.spec.Name, "addr", peer.spec.Addr, "left_out", n)
		}
	}
	return true
}
