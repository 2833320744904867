package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// reach is whether the kernel can send to one peer. The zero value passes all packets. It is safe for
// concurrent use.
type reach struct {
	blocked atomic.Int64 // packets are dropped before this time, Unix nanoseconds
	missed  atomic.Bool  // a packet was dropped since the last call of Undeliverable
}

// blocks reports whether to drop a packet at now (Unix nanoseconds), and records that it was.
func (r *reach) blocks(now int64) bool {
	if now >= r.blocked.Load() {
		return false
	}
	if !r.missed.Load() { // a flood must not write the same value again and again
		r.missed.Store(true)
	}
	return true
}

// Undeliverable sets the outer addresses that the kernel cannot send to because the next hop does not answer.
// For the time d the engine drops packets to these peers as DropUnderlay. Otherwise the kernel would lose
// them, and they would count as delivered. Packets to all other peers are sent. missed has the addresses to
// which packets were dropped since the last call. The caller makes the kernel resolve these neighbours,
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
