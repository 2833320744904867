package keeper

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"weft/lease"
)

// silenceTrusted is how long silence is one, while the store takes no record of ours: whoever was away may be
// back.
const silenceTrusted = 20 * time.Second

// spokenLately is the least time between two answers.
const spokenLately = 50 * time.Millisecond

// inquire begins or ends a round of asking, whichever is due.
func (c *Core) inquire() {
	d := c.contest
	if !d.rounds.Under {
		c.ask()
		return
	}
	d.rounds.End(c.Now, d.heard != "")
	if d.stirred {
		d.rounds.Silent = 0
	}
	c.cause = nil // the contest is the cause
	switch {
	case d.heard != "":
		d.lives = d.heard
		if d.kind == overSpent && !d.vanished && c.own.held != nil {
			c.contest = nil
			c.giveUp(c.own.held.taken(d.Record))
		}
	case d.rounds.Silent < d.need:
	case d.kind == overSpent: // it is the owner, if a silent one: our pods lose nothing while we wait
		d.rounds.Next = c.Now.Add(againMost)
	default:
		level := slog.LevelWarn
		if c.putBack.quarrel(c.Now) {
			level = slog.LevelDebug
		}
		c.Log(level, "the other owner is silent: its record is replaced",
			"event", lease.EventContested, "subnets", d.Subnets.String(), "node", d.Node(), "name", d.PublishedName(),
			"address", d.Address())
		if c.cleared == nil || c.Now.Sub(c.silent) > silenceTrusted {
			c.cleared = map[lease.Subnets]int64{}
		}
		c.cleared[d.Subnets], c.silent = d.Revision, c.Now
		c.contest = nil
		c.duties.add(dutyRead)
	}
	c.finish()
}

// ask begins a round, with a question in the store if there is somebody to ask.
func (c *Core) ask() {
	d := c.contest
	d.heard, d.stirred = "", false
	if d.Node() == "" {
		c.asked(0)
		return
	}
	began, revision := c.Now, c.own.revision()
	if d.gone {
		revision = 0
	}
	c.call(SendMessage{lease.Message{
		To: d.Node(), From: c.process, Node: c.o.Node, Asks: true,
		Subnets: d.Key(), Revision: revision, Serves: revision == 0 && c.serves(), Address: c.Local.Attrs.Address(),
	}}, func(r Result) {
		switch {
		case errors.Is(r.Err, lease.ErrMute):
			c.Log(slog.LevelDebug, "nobody can be asked in the store", "cause", r.Err)
		case r.Err != nil:
			c.fail(r.Err)
			return
		}
		c.asked(c.Now.Sub(began))
	})
}

// asked begins the round's time, and asks over the underlay too. The store took so long to take the question:
// at a slow one, the other hears it late, and takes as long to answer.
func (c *Core) asked(took time.Duration) {
	d := c.contest
	d.rounds.Begin(c.Now.Add(answerWait + 2*took))
	c.asks++
	if d.underlay && !d.vanished && c.o.Underlay != nil {
		c.Do(AskUnderlay{c.asks, d.Attrs})
	}
	c.finish()
}

// takeMessages takes in what others say: an answer counts, and a question waits for its own.
func (c *Core) takeMessages(n News) {
	d := c.contest
	if d != nil && d.rounds.Under && n.Answered == c.asks && d.heard == "" {
		d.heard = livesOnUnderlay // until the round's end, since the store says more
	}
	for _, m := range n.Messages {
		switch {
		case !c.concerns(m):
		case m.Asks:
			c.questions = slices.DeleteFunc(c.questions, func(q question) bool { return m.Replaces(q.Message) })
			if len(c.questions) < messagesMost { // whoever may write to the store could ask without end
				c.questions = append(c.questions, question{m, c.Now.Add(answerWait)})
			}
		case d == nil || !d.rounds.Under || m.Node != d.Node():
		case d.kind == overIdentity || c.own.held != nil && m.Overlaps(c.own.held.Subnets):
			d.heard, d.rounds.Next = livesInStore, time.Time{} // which ends the round
		}
	}
	c.answer()
}

// concerns reports whether m is for this process, of all that have its identity: another's question, or an
// answer to one of its own. It is safe for concurrent use.
func (c *Core) concerns(m lease.Message) bool {
	return m.From != c.process && (m.Asks || m.Answers == c.process)
}

// question is one that waits for an answer, as long as whoever asks does.
type question struct {
	lease.Message
	until time.Time
}

// answer tells the first who asks that we live, if the time has come, and goes on to what is due.
func (c *Core) answer() {
	if at := c.answerDue(); at.IsZero() || c.Now.Before(at) {
		c.nextWork()
		return
	}
	i := slices.IndexFunc(c.questions, c.answers)
	m := c.questions[i]
	c.questions = slices.Delete(c.questions, i, i+1)
	if c.Now.Sub(c.spoke) > putBackSaid {
		c.Log(slog.LevelWarn, "another weftd asks whether we live: it has our identity, or our subnet",
			"event", lease.EventContested, "node", m.Node, "address", addressText(m.Address), "subnets", m.Subnets)
	}
	c.spoke = c.Now
	c.call(SendMessage{lease.Message{
		To: m.Node, From: c.process, Node: c.o.Node, Answers: m.From,
		Subnets: c.own.held.Key(), Revision: c.own.revision(), Address: c.Local.Attrs.Address(),
	}}, func(r Result) {
		if r.Err != nil {
			c.Log(slog.LevelWarn, "the question is not answered", "cause", r.Err)
		}
		c.answer()
	})
}

// answerDue is when the next question is to be answered; the zero time while there is none, or we hold
// nothing.
func (c *Core) answerDue() time.Time {
	ours := c.own.revision()
	c.questions = slices.DeleteFunc(c.questions, func(q question) bool {
		return !c.Now.Before(q.until) || ours != 0 && !c.answers(q)
	})
	if !slices.ContainsFunc(c.questions, c.answers) {
		return time.Time{}
	}
	if at := c.spoke.Add(spokenLately); at.After(c.Now) {
		return at
	}
	return c.Now
}

// answers reports whether we answer q. A node that has held its subnet for longer than we gets no answer: so
// of two that ask each other one does. Once the store went back neither knows since when: then the node
// that serves answers the one that does not.
func (c *Core) answers(q question) bool {
	ours := c.own.revision()
	if ours != 0 && q.Revision >= ours || ours == 0 && (q.Revision != 0 || q.Serves || !c.serves()) {
		return false
	}
	return q.Node == c.o.Node || q.Overlaps(c.own.held.Subnets)
}

// serves reports whether the store has had our record since the start, and nobody else is known to live who
// has it.
func (c *Core) serves() bool { return c.own.confirmed() && (c.contest == nil || c.contest.lives == "") }

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return "unknown"
	}
	return a.String()
}
