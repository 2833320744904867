package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// reach is whether the kernel has anybody to send to for one peer. The zero value lets all packets
// pass. It is safe for concurrent use.
type reach struct {
	blocked atomic.Int64 // until when packets are dropped, Unix nanoseconds
	missed  atomic.Bool  // a packet was dropped since Undeliverable last asked
}

// refuses reports whether a packet is to be dropped at now (Unix nanoseconds), and notes it.
func (r *reach) refuses(now int64) bool {
	if now >= r.blocked.Load() {
		return false
	}
	if !r.missed.Load() { // so that a flood does not write the same again and again
		r.missed.Store(true)
	}
	return true
}

// Undeliverable says for which outer addresses the kernel has nobody to send to. For the time d, packets for the
// peers there are dropped as DropUnderlay; otherwise they would be counted as delivered, and be lost. Packets for
// all other peers are sent again. missed are the addresses for which packets were dropped since the last call. The
// kernel itself does not ask for such a neighbour again, since no packet reaches it: the caller has it ask.
func (e *Engine) Undeliverable(to map[netip.Addr]bool, d time.Duration) (missed []netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	until := e.now() + int64(d)
	for _, p := range e.table.Load().peers {
		r := &p.state.reach
		switch {
		case !to[p.spec.Addr]:
			if r.blocked.Load() != 0 {
				r.blocked.Store(0)
				r.missed.Store(false)
			}
		default:
			if r.missed.Swap(false) {
				missed = append(missed, p.spec.Addr)
			}
			r.blocked.Store(until)
		}
	}
	return missed
}
