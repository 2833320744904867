package tunnel

import (
	"time"

	"weft/encap"
)

// icmpRate and icmpBurst bound how many ICMP errors one worker sends (RFC 1812 section
// 4.3.2.8, RFC 4443 section 2.4 (f): a token bucket). They are enough for every flow of a
// busy node to learn a new MTU at once, and too few to be a flood.
const (
	icmpRate  = 100 // a second
	icmpBurst = 200
)

// complain writes an ICMP error about the offending packet back to the port that
// it came from, from the host TUN's address. mtu is in bytes, for ICMPTooBig.
func (w *worker) complain(k encap.ICMPKind, mtu int, offending []byte) {
	src := w.table.spec.Address4
	if offending[0]>>4 == 6 {
		src = w.table.spec.Address6
		mtu = max(mtu, encap.MinMTU6) // RFC 4213 section 3.2: never less
	}
	if !src.IsValid() {
		return
	}
	reply := w.ring.newReply()
	b, err := encap.AppendICMPError(reply.Space()[:0], k, src, mtu, offending)
	if err != nil {
		return // not a packet to complain about
	}
	if !w.bucket.take(w.now) {
		w.tally.icmpDenied++
		return
	}
	reply.end = reply.off + len(b)
	w.from.port.WriteBatch(w.ring, w.ring.replyOut[:])
	if w.look != nil {
		w.look.told(w, reply)
	}
	if reply.verdict == delivered {
		w.tally.icmpSent++
	}
}

// bucket is a token bucket. The zero value is full.
type bucket struct {
	spent float64
	last  int64 // Unix nanoseconds
}

func (b *bucket) take(now int64) bool {
	refill := float64(now-b.last) / float64(time.Second) * icmpRate
	b.spent = max(0, b.spent-max(0, refill))
	b.last = now
	if b.spent+1 > icmpBurst {
		return false
	}
	b.spent++
	return true
}
