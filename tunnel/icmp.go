package tunnel

import (
	"time"

	"golang.org/x/time/rate"

	"weft/encap"
	"weft/tunnel/port"
)

// icmpRate and icmpBurst are the token bucket for ICMP errors of one worker (RFC 1812 section 4.3.2.8, RFC
// 4443 section 2.4 (f)). They suffice for every flow of a busy node to learn a new MTU at once.
const (
	icmpRate  = 100 // a second
	icmpBurst = 200
)

// sendICMPError sends an ICMP error about the offending packet to the port that it was read from or, on
// ingress, to the peer. The source is the host TUN's address. mtu is in bytes, for ICMPTooBig.
func (w *worker) sendICMPError(k encap.ICMPKind, mtu int, offending []byte) {
	src := w.table.spec.Address4
	if offending[0]>>4 == 6 {
		src = w.table.spec.Address6
		mtu = max(mtu, encap.MinMTU6) // at least 1280 (RFC 4213 section 3.2)
	}
	if !src.IsValid() {
		return
	}
	reply := w.ring.Reply()
	b, err := encap.AppendICMPError(reply.Space()[:0], k, src, mtu, offending)
	if err != nil {
		return // the packet allows no ICMP error
	}
	reply.SetLen(len(b))
	out, limit := w.from, &w.icmpLimit
	switch w.from.role {
	case RolePod: // one pod's errors must not use up another's rate
		limit = &w.from.pod.icmpLimit
	case RoleUnderlay:
		limit = &w.peerICMPLimit
		if out = w.replyUnderlay(reply); out == nil {
			return
		}
	case RoleHost:
	}
	if !limit.allow(w.now) {
		w.tally.icmpDenied++
		return
	}
	out.port.WriteBatch(w.ring, w.single(reply))
	if w.captures != nil {
		w.captures.icmpSent(w, reply)
	}
	if reply.Verdict == port.Delivered {
		w.tally.icmpSent++
	}
}

// replyUnderlay addresses reply to the peer of its inner destination. It returns the underlay to send it by,
// or nil if there is none.
func (w *worker) replyUnderlay(reply *port.Packet) *attachedPort {
	in, err := reply.Parse()
	if err != nil {
		return nil
	}
	peer, found := w.table.routes.Lookup(in.Dst)
	if !found || in.Version == 6 && !peer.inner6 || in.TotalLen > peer.maxInner(w.now) ||
		peer.state.reach.blocks(w.now) {
		return nil
	}
	w.address(reply, peer, in.Version, in.ECN())
	return w.set.under(peer)
}

// rateLimit is a token bucket. The zero value is full.
type rateLimit struct{ *rate.Limiter }

func (b *rateLimit) allow(now int64) bool {
	if b.Limiter == nil {
		b.Limiter = rate.NewLimiter(icmpRate, icmpBurst)
	}
	return b.AllowN(time.Unix(0, now), 1)
}
