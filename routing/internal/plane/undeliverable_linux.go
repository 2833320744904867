package plane

import (
	"net/netip"
	"time"

	"weft/tunnel/port"
)

const (
	// askEvery is how often the kernel is to ask for a silent neighbour that packets wait for, and
	// askIdle for one that none do: whoever comes back unheard shall not wait for the first packet's loss. Each
	// asking is three questions in three seconds, to all of the link.
	askEvery = time.Second
	askIdle  = 10 * time.Second
	// askMost is for how many it is to ask at a time.
	askMost = 32
	// refuseFor is how long packets are dropped without being told again: a control plane that hangs must not
	// keep from anybody what the kernel would send.
	refuseFor = 5 * askEvery
)

// Refuse has packets dropped, and counted, for peers whose next hop does not answer, and the kernel ask for
// it again.
func (p *Plane) Refuse() {
	h, now := &p.next, time.Now()
	to := h.routes.undeliverable(h.silent, h.key.link.Carrier)
	if n := len(to); n != h.closed {
		p.log.Info("peers whose next hop does not answer", "event", port.EventPeerUnanswering, "peers", n,
			"before", h.closed)
		h.closed = n
	}
	waiting := map[netip.Addr]bool{}
	for _, a := range p.engine.Undeliverable(to, refuseFor) {
		waiting[h.routes.via[a]] = true
	}
	if h.asked == nil {
		h.asked = map[netip.Addr]time.Time{}
	}
	for a := range h.asked {
		if !h.silent[a] {
			delete(h.asked, a)
		}
	}
	left := askMost
	for a := range h.silent {
		pause := askIdle
		if waiting[a] {
			pause = askEvery
		}
		if left > 0 && now.Sub(h.asked[a]) >= pause {
			left--
			h.asked[a] = now
			if err := p.out.Ask(h.key.link.Index, a); err != nil {
				p.log.Debug("ask for a neighbour", "neighbour", a, "error", err)
			}
		}
	}
}

// Again is when Refuse has to be called once more; nil for never.
func (p *Plane) Again() <-chan time.Time {
	if p.next.closed == 0 {
		return nil
	}
	return time.After(askEvery)
}
