package probe

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// ErrNotAsked says that an address is no peer's that answers questions by UDP, or that this node cannot ask.
var ErrNotAsked = errors.New("not asked")

// Series is how many questions are sent, the time from one to the next, and how long the answer to each may
// take.
type Series struct {
	Count             int
	Interval, Timeout time.Duration
}

// Round is what came of a series.
type Round struct {
	// RTTs has an element for each question: the round trip, or 0 for no answer.
	RTTs []time.Duration
	// Refused says that the peer's host answered that nothing listens on the port.
	Refused bool
	// Unsent is why this host could not send; "" if it could.
	Unsent string
}

// pending is a question of an Ask that has not been answered.
type pending struct {
	to    netip.Addr
	sent  time.Time
	got   func(time.Duration) // called with Prober.mu held
	other func(refused bool, unsent string)
}

// Ask asks the peer with that overlay address a series of questions, and waits for the answers: until all are
// there or the time is over, until its host refuses, or ctx ends. The error is ErrNotAsked. It disturbs
// nothing of what is known of the peer.
func (p *Prober) Ask(ctx context.Context, to netip.Addr, s Series) (Round, error) {
	r := Round{RTTs: make([]time.Duration, s.Count)}
	answered, events := 0, make(chan struct{}, 1)
	wake := func() {
		select {
		case events <- struct{}{}:
		default:
		}
	}
	nonces := make([]uint64, 0, s.Count)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, n := range nonces {
			delete(p.pending, n)
		}
	}()
	ask := func(i int) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.stopped || p.udp[p.source(to.Is6())] == nil || p.core.portOf(to) == 0 {
			return ErrNotAsked
		}
		nonce := unguessable()
		nonces = append(nonces, nonce)
		p.pending[nonce] = pending{
			to: to, sent: time.Now(),
			got:   func(d time.Duration) { r.RTTs[i] = max(d, 1); answered++; wake() },
			other: func(refused bool, unsent string) { r.Refused, r.Unsent = r.Refused || refused, unsent; wake() },
		}
		p.step(Ask{to, nonce})
		return nil
	}
	done := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return answered == s.Count || r.Refused
	}
	sent := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return p.round(&r), nil
		case <-events:
			continue
		case <-timer.C:
		}
		if sent == s.Count {
			break
		}
		if err := ask(sent); err != nil {
			return Round{}, err
		}
		if sent++; sent < s.Count {
			timer.Reset(s.Interval)
		} else {
			timer.Reset(s.Timeout)
		}
	}
	return p.round(&r), nil
}

// round copies r, which late answers may still change.
func (p *Prober) round(r *Round) Round {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := *r
	out.RTTs = append([]time.Duration(nil), r.RTTs...)
	return out
}

// asked hands an answer to who asked. p.mu is held.
func (p *Prober) asked(from netip.AddrPort, b []byte) {
	if len(p.pending) == 0 {
		return
	}
	d, err := Parse(b)
	if err != nil || d.Kind != Answer {
		return
	}
	q, ok := p.pending[d.Nonce]
	if !ok || q.to != from.Addr() || from.Port() != p.core.portOf(q.to) {
		return
	}
	delete(p.pending, d.Nonce)
	q.got(time.Since(q.sent))
}

// notReached tells who asks an address what ICMP, or the kernel, says of it. p.mu is held.
func (p *Prober) notReached(to netip.Addr, refused bool, unsent string) {
	for _, q := range p.pending {
		if q.to == to {
			q.other(refused, unsent)
		}
	}
}
