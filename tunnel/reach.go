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

// Undeliverable reports outer addresses to which the kernel cannot send, because the next hop does not
// answer. For the time d, the engine drops packets for the peers there as DropUnderlay, which would otherwise
// be lost and count as delivered. It sends packets for all other peers again. missed has the addresses for
// which packets were dropped since the last call. The caller makes the kernel ask for such a neighbour again,
// because no packet does.
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
