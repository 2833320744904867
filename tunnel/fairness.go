package tunnel

import (
	"context"
	"net/netip"
	"time"

	"weft/tunnel/fair"
	"weft/tunnel/port"
)

const (
	// fairTick is how often the queues are checked while much is moved: at least fairBusy packets a second.
	// fairIdle is how often the engine finds out whether so much is.
	fairTick, fairIdle = 50 * time.Millisecond, 250 * time.Millisecond
	fairBusy           = 2000
	// activeFor is how long after its last packet a peer counts as one that the others could harm. The clock of
	// LastRx has a resolution of one second.
	activeFor = 2 * time.Second
)

// fairPort is the fairness of an attached underlay.
type fairPort struct {
	fair.Queue
	counting bool // every peer's seen is of the tick before
	failed   bool // the kernel refused the filter
}

// keepFair is the engine's tick until ctx ends: it checks the queues of the underlays, and has errors heard
// again.
func (e *Engine) keepFair(ctx context.Context) {
	t := time.NewTicker(fairIdle)
	defer t.Stop()
	every, seen := fairIdle, uint64(0)
	var from []fair.Arrival
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		e.hearErrors()
		received := uint64(0)
		for _, w := range e.workers {
			received += w.totals.ingress.received.Load() + w.totals.egress.received.Load()
		}
		next := fairIdle
		if received-seen >= uint64(fairBusy*every/time.Second) {
			next = fairTick
		}
		seen = received
		if every == fairTick && !e.pausedNow.Load() {
			var held bool
			if from, held = e.checkQueues(from); held {
				next = fairTick
			}
		}
		if next != every {
			every = next
			t.Reset(every)
		}
	}
}

// checkQueues is one tick of every underlay. from is memory to use. It reports whether anybody is held back.
func (e *Engine) checkQueues(from []fair.Arrival) (_ []fair.Arrival, held bool) {
	e.mu.Lock() // no port is closed meanwhile
	defer e.mu.Unlock()
	set := e.ports.Load()
	for _, a := range []*attached{set.under4, set.under6} {
		if a == nil || a.fair.failed {
			continue
		}
		p, ok := a.port.(port.Holding)
		if !ok {
			continue
		}
		fill := p.Fill()
		if fill < fair.Full/2 && len(a.fair.Held) == 0 {
			a.fair.Release()
			a.fair.counting = false
			continue
		}
		from = e.arrivals(from[:0], a.outer6)
		if !a.fair.counting { // what was counted is of more than a tick
			a.fair.counting = true
			continue
		}
		before := append([]fair.Held(nil), a.fair.Held...)
		if a.fair.Tick(fill, from) {
			e.holdBack(a, p, before)
		}
		held = held || len(a.fair.Held) > 0
	}
	return from, held
}

// arrivals appends what each peer of an outer family sent since the call before.
func (e *Engine) arrivals(from []fair.Arrival, six bool) []fair.Arrival {
	now := e.now()
	for _, p := range e.table.Load().peers {
		if p.spec.Addr.Is6() != six {
			continue
		}
		s := p.state
		n := s.rxPackets.Load()
		for r := range s.drops {
			n += s.drops[r].Load()
		}
		a := fair.Arrival{Addr: p.spec.Addr, Sources: 1 + len(p.spec.Sources), Packets: n - s.fairSeen}
		a.Active = a.Packets > 0 || now-s.lastRx.Load()*int64(time.Second) < int64(activeFor)
		s.fairSeen = n
		from = append(from, a)
	}
	return from
}

// outers are the addresses of a family that the peer sends from.
func (p *Peer) outers(six bool) (l []netip.Addr) {
	for i := -1; i < len(p.spec.Sources); i++ {
		if a := p.spec.outer(i); a.Is6() == six {
			l = append(l, a)
		}
	}
	return l
}

// holdBack puts into force what was decided for a, and says what is new in it.
func (e *Engine) holdBack(a *attached, p port.Holding, before []fair.Held) {
	t := e.table.Load()
	var sources []port.HeldSource
	for _, h := range a.fair.Held {
		if peer := t.senders[h.Addr]; peer != nil {
			for _, addr := range peer.outers(a.outer6) {
				sources = append(sources, port.HeldSource{Addr: addr, Share: h.Share})
			}
		}
	}
	if err := p.Hold(sources); err != nil {
		a.fair.failed = true
		a.fair.Release()
		_ = p.Hold(nil) // as far as it goes
		e.log.Warn("one peer's packets may fill the queue that others share: the kernel refuses the filter",
			"cause", err)
	}
	e.sayHeld(t, a.fair.Held, before, "held back: its packets fill the queue that others share")
	e.sayHeld(t, before, a.fair.Held, "no longer held back")
}

// sayHeld writes a line about each of l that is not in but.
func (e *Engine) sayHeld(t *Table, l, but []fair.Held, what string) {
	had := make(map[netip.Addr]bool, len(but))
	for _, h := range but {
		had[h.Addr] = true
	}
	for _, h := range l {
		if had[h.Addr] {
			continue
		}
		name := ""
		if p := t.senders[h.Addr]; p != nil {
			name = p.spec.Name
		}
		if n, ok := e.saying.may(e.now()); ok {
			e.log.Info(what, "event", port.EventPeerHeldBack, "peer", name, "addr", h.Addr, "left_out", n)
		}
	}
}

// hearErrors ends the silence after floods of errors.
func (e *Engine) hearErrors() {
	e.mu.Lock() // no port is closed meanwhile
	defer e.mu.Unlock()
	set := e.ports.Load()
	for _, a := range []*attached{set.under4, set.under6} {
		if a == nil {
			continue
		}
		for _, q := range a.queues {
			if q.errors != nil {
				q.errors.Hear()
			}
		}
	}
}
