package tunnel

import (
	"time"

	"golang.org/x/time/rate"

	"weft/encap"
	"weft/tunnel/port"
)

// icmpRate and icmpBurst bound how many ICMP errors one worker sends (RFC 1812 section
// 4.3.2.8, RFC 4443 section 2.4 (f): a token bucket). They are enough for every flow of a
// busy node to learn a new MTU at once, and too few to be a flood.
const (
	icmpRate  = 100 // a second
	icmpBurst = 200
)

// complain writes an ICMP error about the offending packet back to where it came from: to the port that it
// was read from, or to the peer that sent it. It comes from the host TUN's address. mtu is in bytes, for
// ICMPTooBig.
func (w *worker) complain(k encap.ICMPKind, mtu int, offending []byte) {
	src := w.table.spec.Address4
	if offending[0]>>4 == 6 {
		src = w.table.spec.Address6
		mtu = max(mtu, encap.MinMTU6) // RFC 4213 section 3.2: never less
	}
	if !src.IsValid() {
		return
	}
	reply := w.ring.Reply()
	b, err := encap.AppendICMPError(reply.Space()[:0], k, src, mtu, offending)
	if err != nil {
		return // not a packet to complain about
	}
	reply.SetLen(len(b))
	out, bucket := w.from, &w.bucket
	switch w.from.role {
	case RolePod: // one pod's errors are not withheld for another's
		bucket = &w.from.pod.bucket
	case RoleUnderlay:
		bucket = &w.away
		if out = w.back(reply); out == nil {
			return
		}
	case RoleHost:
	}
	if !bucket.take(w.now) {
		w.tally.icmpDenied++
		return
	}
	out.port.WriteBatch(w.ring, w.alone(reply))
	if w.look != nil {
		w.look.told(w, reply)
	}
	if reply.Verdict == port.Delivered {
		w.tally.icmpSent++
	}
}

// back addresses reply to the peer of its inner destination, and returns the underlay that it leaves by; nil
// if there is no way.
func (w *worker) back(reply *port.Packet) *attached {
	in, err := reply.Parse()
	if err != nil {
		return nil
	}
	peer, found := w.table.routes.Lookup(in.Dst)
	if !found || in.Version == 6 && !peer.inner6 || in.TotalLen > peer.maxInner(w.now) ||
		peer.state.reach.refuses(w.now) {
		return nil
	}
	w.address(reply, peer, in.Version, in.ECN())
	return w.set.under(peer)
}

// bucket bounds a rate. The zero value is full.
type bucket struct{ *rate.Limiter }

func (b *bucket) take(now int64) bool {
	if b.Limiter == nil {
		b.Limiter = rate.NewLimiter(icmpRate, icmpBurst)
	}
	return b.AllowN(time.Unix(0, now), 1)
}
