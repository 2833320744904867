package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// way is what the kernel's tables say about the way to one peer. The zero value lets all packets
// pass. It is safe for concurrent use.
type way struct {
	blocked atomic.Int64 // until when packets are dropped, Unix nanoseconds
	missed  atomic.Bool  // one was, since somebody last looked
}

// refuses reports whether a packet is to be dropped at now (Unix nanoseconds), and notes it.
func (y *way) refuses(now int64) bool {
	if now >= y.blocked.Load() {
		return false
	}
	if !y.missed.Load() { // so that a flood does not write the same again and again
		y.missed.Store(true)
	}
	return true
}

// Undeliverable says for which outer addresses the kernel has nobody to send to: packets for the
// peers there are dropped as DropUnderlay for the time d, where they else were counted as delivered and lost. Those
// for all others are sent again. missed are the addresses for which some were dropped since the last call: who
// knows how has the kernel look again, which nobody does whose packets go no further than here.
func (e *Engine) Undeliverable(to map[netip.Addr]bool, d time.Duration) (missed []netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	until := e.now() + int64(d)
	for _, p := range e.table.Load().peers {
		y := &p.state.way
		switch {
		case !to[p.spec.Addr]:
			if y.blocked.Load() != 0 {
				y.blocked.Store(0)
				y.missed.Store(false)
			}
		default:
			if y.missed.Swap(false) {
				missed = append(missed, p.spec.Addr)
			}
			y.blocked.Store(until)
		}
	}
	return missed
}
