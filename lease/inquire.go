package lease

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"
)

// inquire begins or ends a round of asking, whichever is due.
func (k *Keeper) inquire(ctx context.Context) error {
	c := k.contest
	if !c.asked {
		return k.ask(ctx)
	}
	c.asked = false
	switch heard := c.heard; {
	case heard != "":
		c.lives, c.silent = heard, 0
		c.next = time.Now().Add(min(againFirst<<min(c.waits, 8), againMost))
		c.waits++
		if c.yields && !c.gone {
			k.contest = nil
			k.give(Lost, k.held.taken(c.Record))
			return nil
		}
	default:
		c.silent++
		c.waits = 0
		c.next = time.Now().Add(roundPause)
		if c.silent < c.need {
			break
		}
		if c.yields { // it is the owner, if a silent one: our pods lose nothing while we wait
			c.next = time.Now().Add(againMost)
			break
		}
		level := slog.LevelWarn
		if k.putBacks.quarrel() {
			level = slog.LevelDebug
		}
		k.log.Log(ctx, level, "the other owner is silent: its record is replaced", "subnets", c.Subnets.String(), "node", c.Node(), "address", c.Address())
		k.cleared = map[Subnets]int64{c.Subnets: c.Revision}
		k.contest, k.doubt = nil, true
		return nil
	}
	k.enter(Waiting, k.contestError())
	return nil
}

// ask begins a round.
func (k *Keeper) ask(ctx context.Context) error {
	c := k.contest
	c.number++
	c.heard = ""
	if c.Node() != "" {
		m := Message{To: c.Node(), From: k.process, Node: k.o.Node, Asks: true, Subnets: c.Key(), Revision: k.lastOurs(), Address: k.currentLocal().Attrs.Address()}
		switch err := k.tell(ctx, m); {
		case errors.Is(err, ErrMute):
			k.log.Debug("nobody can be asked in the store", "cause", err)
		case err != nil:
			return err
		}
	}
	c.asked, c.next = true, time.Now().Add(answerWait)
	if c.underlay && !c.gone && k.o.Underlay != nil {
		number, about, in := c.number, c.Attrs, k.in
		k.spawn(func() {
			ctx, cancel := context.WithTimeout(ctx, answerWait)
			defer cancel()
			if k.o.Underlay.Answers(ctx, about) {
				in.echo(number)
			}
		})
	}
	return nil
}

func (k *Keeper) tell(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.store.Tell(ctx, m)
}

// lastOurs is where the store last had our record as we wrote it; 0 if it has not since the start.
func (k *Keeper) lastOurs() int64 {
	if !k.confirmedHolder() {
		return 0
	}
	return k.held.Revision
}

// attend takes in what others say: it answers questions, and notes answers.
func (k *Keeper) attend(ctx context.Context) {
	messages, echo := k.in.said()
	c := k.contest
	if c != nil && c.asked && echo == c.number && c.heard == "" {
		c.heard = livesOnUnderlay // until the round's end, since the store says more
	}
	for _, m := range messages {
		switch {
		case m.From == k.process:
		case m.Asks:
			k.answer(ctx, m)
		case c == nil || !c.asked || m.Answers != k.process || m.Node != c.Node():
		case c.twin || m.overlaps(k.held.Subnets):
			c.heard, c.next = livesInStore, time.Time{} // which ends the round
		}
	}
}

// answer tells whoever asks that we live, if we hold something, and held it after the asker did:
// so of two that ask each other one gets an answer.
func (k *Keeper) answer(ctx context.Context, m Message) {
	ours := k.lastOurs()
	if ours == 0 || m.Revision >= ours || m.Node != k.o.Node && !m.overlaps(k.held.Subnets) || time.Since(k.spoke) < spokenLately {
		return
	}
	if time.Since(k.spoke) > putBackSaid {
		k.log.Warn("another weftd asks whether we live: it has our identity, or our subnet", "node", m.Node, "address", addressText(m.Address), "subnets", m.Subnets)
	}
	k.spoke = time.Now()
	reply := Message{To: m.Node, From: k.process, Node: k.o.Node, Answers: m.From, Subnets: k.held.Key(), Revision: ours, Address: k.currentLocal().Attrs.Address()}
	if err := k.tell(ctx, reply); err != nil {
		k.log.Warn("the question is not answered", "cause", err)
	}
}

// spokenLately is the least time between two answers.
const spokenLately = 50 * time.Millisecond

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return "unknown"
	}
	return a.String()
}
