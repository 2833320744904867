package tunnel

import (
	"context"
	"net/netip"
	"time"

	"weft/tunnel/fair"
	"weft/tunnel/port"
)

const (
	// fairTick is how often the queues are checked while at least fairBusy packets a second pass. Otherwise only
	// the packet rate is checked, every fairIdle.
	fairTick, fairIdle = 50 * time.Millisecond, 250 * time.Millisecond
	fairBusy           = 2000
	// activeFor is how long after its last packet a peer counts as active. LastRx has a resolution of one
	// second.
	activeFor = 2 * time.Second
)

// fairPort is the fairness state of an underlay.
type fairPort struct {
	fair.Queue
	counting bool // peerState.fairSeen is of the previous tick
	failed   bool // the kernel rejected the filter
}

// fairLoop checks the receive queues of the underlays until ctx ends. It also unmutes socket errors.
func (e *Engine) fairLoop(ctx context.Context) {
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
		e.unmuteErrors()
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

// checkQueues checks every underlay once. It reuses from, and reports whether any peer is throttled.
func (e *Engine) checkQueues(from []fair.Arrival) (_ []fair.Arrival, held bool) {
	e.mu.Lock() // no port is closed meanwhile
	defer e.mu.Unlock()
	set := e.ports.Load()
	for _, a := range []*attachedPort{set.under4, set.under6} {
		if a == nil || a.fair.failed {
			continue
		}
		p, ok := a.port.(port.Throttler)
		if !ok {
			continue
		}
		fill := p.Fill()
		if fill < fair.Full/2 && len(a.fair.Throttled) == 0 {
			a.fair.Release()
			a.fair.counting = false
			continue
		}
		from = e.arrivals(from[:0], a.outer6)
		if !a.fair.counting { // the counts are of more than one tick
			a.fair.counting = true
			continue
		}
		before := append([]fair.Throttled(nil), a.fair.Throttled...)
		if a.fair.Tick(fill, from) {
			e.throttle(a, p, before)
		}
		held = held || len(a.fair.Throttled) > 0
	}
	return from, held
}

// arrivals appends the packets that each peer of an outer family sent since the last call.
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

// outers returns the outer addresses of one family that the peer sends from.
func (p *Peer) outers(six bool) (l []netip.Addr) {
	for i := -1; i < len(p.spec.Sources); i++ {
		if a := p.spec.outer(i); a.Is6() == six {
			l = append(l, a)
		}
	}
	return l
}

// throttle installs the filter for a's throttled peers, and logs what changed since before.
func (e *Engine) throttle(a *attachedPort, p port.Throttler, before []fair.Throttled) {
	t := e.table.Load()
	var sources []port.ThrottledSource
	for _, h := range a.fair.Throttled {
		if peer := t.senders[h.Addr]; peer != nil {
			for _, addr := range peer.outers(a.outer6) {
				sources = append(sources, port.ThrottledSource{Addr: addr, Share: h.Share})
			}
		}
	}
	if err := p.Throttle(sources); err != nil {
		a.fair.failed = true
		a.fair.Release()
		_ = p.Throttle(nil) // remove as much as possible
		e.log.Warn("one peer may fill the shared receive queue: the kernel rejected the filter",
			"cause", err)
	}
	e.logThrottled(t, a.fair.Throttled, before, "peer held back: its packets fill the shared receive queue")
	e.logThrottled(t, before, a.fair.Throttled, "peer no longer held back")
}

// logThrottled logs msg for each peer of l that is not in except.
func (e *Engine) logThrottled(t *Table, l, except []fair.Throttled, msg string) {
	skip := make(map[netip.Addr]bool, len(except))
	for _, h := range except {
		skip[h.Addr] = true
	}
	for _, h := range l {
		if skip[h.Addr] {
			continue
		}
		name := ""
		if p := t.senders[h.Addr]; p != nil {
			name = p.spec.Name
		}
		if n, ok := e.logLimit.allow(e.now()); ok {
			e.log.Info(msg, "event", port.EventPeerHeldBack, "peer", name, "addr", h.Addr, "left_out", n)
		}
	}
}

// unmuteErrors ends the muting of sockets after floods of errors.
func (e *Engine) unmuteErrors() {
	e.mu.Lock() // no port is closed meanwhile
	defer e.mu.Unlock()
	set := e.ports.Load()
	for _, a := range []*attachedPort{set.under4, set.under6} {
		if a == nil {
			continue
		}
		for _, q := range a.queues {
			if q.errors != nil {
				q.errors.Unmute()
			}
		}
	}
}
