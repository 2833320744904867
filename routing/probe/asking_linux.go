package probe

import (
	"context"
	"errors"
	"net/netip"
	"slices"
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

// asking is a series on its way. Prober.mu guards it.
type asking struct {
	Round
	to   netip.AddrPort
	sent map[uint64]sent // by nonce, without those that are answered
	left int             // questions that are not answered, or not sent yet
	end  func()          // nothing more is to come
}

type sent struct {
	number int
	at     time.Time
}

// Ask asks the peer with that overlay address a series of questions, and waits for the answers: until all are
// there or the time is over, until its host refuses, or ctx ends. The error is ErrNotAsked. It disturbs
// nothing of what is known of the peer.
func (p *Prober) Ask(ctx context.Context, to netip.Addr, s Series) (Round, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &asking{Round: Round{RTTs: make([]time.Duration, s.Count)}, sent: map[uint64]sent{}, left: s.Count,
		end: cancel}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.askings = slices.DeleteFunc(p.askings, func(o *asking) bool { return o == a })
	}()
	for i := range s.Count {
		if !p.ask(a, to, i) {
			return Round{}, ErrNotAsked
		}
		wait := s.Interval
		if i == s.Count-1 {
			wait = s.Timeout
		}
		select {
		case <-time.After(wait):
			continue
		case <-ctx.Done():
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := a.Round
	out.RTTs = slices.Clone(a.RTTs) // late answers may still change it
	return out, nil
}

// ask sends the question of a number, or reports that it cannot.
func (p *Prober) ask(a *asking, to netip.Addr, number int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.core.ways[to]
	if p.stopped || w == nil || w.isEcho() || p.udp[p.source(to.Is6())].socket == nil {
		return false
	}
	if number == 0 {
		p.askings = append(p.askings, a)
	}
	nonce := Unguessable()
	a.to, a.sent[nonce] = netip.AddrPortFrom(w.Addr, w.Port), sent{number, time.Now()}
	p.step(Ask{to, nonce})
	return true
}

// asked hands an answer to who asked. p.mu is held.
func (p *Prober) asked(from netip.AddrPort, b []byte) {
	if len(p.askings) == 0 {
		return
	}
	d, err := Parse(b)
	if err != nil || d.Kind != Answer {
		return
	}
	for _, a := range p.askings {
		if q, ok := a.sent[d.Nonce]; ok && a.to == from {
			delete(a.sent, d.Nonce)
			a.RTTs[q.number] = max(time.Since(q.at), 1)
			if a.left--; a.left == 0 {
				a.end()
			}
		}
	}
}

// notReached tells who asks an address what ICMP, or the kernel, says of it. p.mu is held.
func (p *Prober) notReached(to netip.Addr, refused bool, unsent string) {
	for _, a := range p.askings {
		if a.to.Addr() == to {
			a.Refused, a.Unsent = a.Refused || refused, unsent
			if refused {
				a.end()
			}
		}
	}
}
