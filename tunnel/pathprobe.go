package tunnel

import (
	"time"

	"weft/encap"
	"weft/tunnel/pathmtu"
	"weft/tunnel/port"
)

const (
	// checkProbes is how many probes of each size a check sends, so that one lost probe proves nothing.
	checkProbes = 3
	// floodGap is the least time between two log lines about a flood of errors.
	floodGap = time.Minute
)

// onSendError handles an error that the network reported for a datagram. The kernel has checked that the
// quoted ports are this socket's. Anyone can know these ports, so a claim about the path MTU is checked with
// probes if the peer answers them. Otherwise it is believed within limits.
func (w *worker) onSendError(e port.SendError) {
	peer := w.table.senders[e.Dst]
	if peer == nil || peer.spec.Addr != e.Dst {
		return
	}
	if e.Why != 0 {
		w.noteUnreachable(peer, e)
	}
	if !e.TooBig {
		return
	}
	path, sent := &peer.state.path, min(peer.linkMTU, peer.maxSize+peer.cost)
	if peer.probes {
		if c, ok := path.StartCheck(e.Dst, e.MTU, sent, peer.cost, w.now); ok {
			w.checkPath(peer, c)
		}
		return
	}
	if !path.Learn(e.Dst, e.MTU, sent, w.now) {
		return
	}
	if n, ok := w.logLimit.allow(w.now); ok {
		w.engine.log.Info("path MTU lowered by a packet-too-big message", "event", port.EventPathMTU,
			"peer", peer.spec.Name, "addr", e.Dst, "mtu", path.Get(w.now), "inner", peer.maxInner(w.now),
			"left_out", n)
	}
}

// logMuted logs that a flood of errors is not read, at most once in floodGap: a flood may last for hours.
func (w *worker) logMuted() {
	if w.now-w.mutedLogged < int64(floodGap) {
		return
	}
	w.mutedLogged = w.now
	if n, ok := w.logLimit.allow(w.now); ok {
		w.engine.log.Warn("flood of ICMP errors about sent datagrams: most are dropped unread, so that packets "+
			"can be read",
			"read_at_most", port.MaxErrors, "each", port.ErrorWindow, "left_out", n)
	}
}

// checkPath sends the probes of c, and concludes the check after pathmtu.AnswerTime.
func (w *worker) checkPath(peer *Peer, c pathmtu.Check) {
	for range checkProbes {
		for _, size := range c.Sizes() {
			w.sendProbe(peer, encap.Probe{Token: c.Token}, size-c.Cost)
		}
	}
	e := w.engine
	time.AfterFunc(pathmtu.AnswerTime, func() { // uses only the peer's state, which may outlive all else
		changed, proven := peer.state.path.Conclude(c.Token, e.now())
		if !changed {
			return
		}
		if n, ok := e.logLimit.allow(e.now()); ok {
			e.log.Info("path MTU lowered by a packet-too-big message", "event", port.EventPathMTU, "proven", proven,
				"peer", peer.spec.Name, "addr", peer.spec.Addr, "mtu", peer.state.path.Get(e.now()), "inner",
				peer.maxInner(e.now()), "left_out", n)
		}
	})
}

// sendProbe sends a probe or an answer of length bytes to the peer. Failing to send it counts as loss.
func (w *worker) sendProbe(peer *Peer, p encap.Probe, length int) {
	under := w.set.under(peer)
	if under == nil || length < encap.ProbeLen || length > port.MaxPacket {
		return
	}
	d := w.ring.Reply()
	b := encap.AppendProbe(d.Space()[:0], p)
	b = append(b, encap.Padding(length-len(b))...)
	d.SetLen(len(b))
	d.Outer = peer.outer(w.engine.cfg.Port)
	if w.captures != nil {
		w.captures.datagramSent(w, under, d, peer)
	}
	under.port.WriteBatch(w.ring, w.single(d))
}

// handleProbe handles a datagram of peer that is a probe, which it answers, or an answer. It returns false
// for any other datagram. An answer is never longer than its probe, and goes only to peers.
func (w *worker) handleProbe(peer *Peer, p *port.Packet) bool {
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
		if w.probeLimit.allow(w.now) {
			w.sendProbe(peer, encap.Probe{Answer: true, Length: uint16(len(datagram)), Token: q.Token}, encap.ProbeLen)
		}
	case w.engine.runs.answered(peer.state, q.Token, int(q.Length)):
	case peer.state.path.Answered(q.Token, int(q.Length), w.now):
		if n, ok := w.logLimit.allow(w.now); ok {
			w.engine.log.Warn("a packet-too-big message was wrong or forged: larger datagrams reach the peer", "event",
				port.EventPathMTU, "peer", peer.spec.Name, "addr", peer.spec.Addr, "left_out", n)
		}
	}
	return true
}
