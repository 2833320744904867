package keeper

import (
	"context"
	"time"

	"weft/lease"
)

// Underlay tells a keeper whether a node can be reached, independently of the store.
type Underlay interface {
	// Answers reports whether the node that publishes a answers over the underlay from another machine, by
	// itself or by its kernel. It takes no longer than ctx, and returns false if it cannot tell. It is called
	// from goroutines of their own.
	Answers(ctx context.Context, a lease.Attrs) bool
}

// How it is found out whether another owner lives.
const (
	// answerWait is how long a round of asking lasts at least: the time that the question takes through a quick
	// store to the other's watch, and the answer back, and three echo requests.
	answerWait = 1500 * time.Millisecond
	// silentLong is how many rounds without an answer make a stranger silent, silentShort how
	// many suffice if our state directory or our address says that we were there before.
	silentLong, silentShort = 3, 1
)

// States of the other owner's life.
const (
	livesInStore    = "it answers in the store"
	livesOnUnderlay = "its address answers"
)

// contestKind says what a contest is over.
type contestKind uint8

const (
	// overIdentity: another process has written the record with our identity. If it is silent, the
	// record is ours.
	overIdentity contestKind = iota
	// overOurs: another identity's record stands in the place of ours, which has not run out. If the
	// owner is silent, ours is put back.
	overOurs
	// overSpent: as overOurs, but we have no claim any more but that our pods are there. If the owner lives,
	// it is the owner.
	overSpent
)

// contest is about a record that stands where ours should: nothing is written before it is known
// whether its owner lives.
type contest struct {
	lease.Record
	kind contestKind
	// vanished says that the record, whose owner lived, is gone since.
	vanished bool
	// underlay says that an answer over the underlay counts: not for a record of ours that was
	// written over, since any address can be written there.
	underlay bool
	// need is how many rounds without an answer are enough.
	need int
	// gone says that the store has no record of ours beside it, so that we ask without a revision: where the
	// store had ours is no claim against who is there, and may be of a store that was restored and has come as
	// far again.
	gone bool

	since  time.Time // when we met it first
	rounds Rounds
	heard  string // how an answer came in this round; "" for none
	// stirred says that this round's silence says nothing: the record was written in it, and its author may have
	// come up after the question, or the store was away, and with it the answer.
	stirred bool
	lives   string // the same of the last round with one
}

// same reports whether both are about the same matter, and so what is known of one holds.
func (c *contest) same(d *contest) bool {
	return c.Subnets == d.Subnets && c.kind == d.kind && c.Node() == d.Node()
}

// overLiving reports whether c, which may be nil, is about the record of another process with our identity
// that is known to live.
func (c *contest) overLiving() bool { return c != nil && c.kind == overIdentity && c.lives != "" }

// vanish is c when the record that it is about is gone: whoever lives puts it back.
func (c *contest) vanish() *contest {
	if !c.vanished {
		c.vanished, c.rounds.Silent, c.need = true, 0, silentShort
	}
	return c
}

// next is when there is something to do about it.
func (c *contest) next() time.Time { return c.rounds.Next }

// contend notes that a record is in our place. before is what was known until now, nil for nothing.
func (c *Core) contend(before *contest, d contest) {
	d.since = c.Now
	if before != nil && before.same(&d) {
		if before.Revision != d.Revision { // somebody writes it
			before.rounds.Silent, before.stirred = 0, true
		}
		before.Record, before.vanished = d.Record, false
		before.underlay, before.need, before.gone = d.underlay, d.need, d.gone
		d = *before
	}
	c.contest, c.cause = &d, nil // the contest is the cause
}

// contestError describes the contest that there is.
func (c *Core) contestError() error {
	d, self := c.contest, c.self()
	e := &lease.ContestError{
		Ours: self.Node, OurAddress: self.PublicIP, Theirs: d.Node(), TheirName: d.PublishedName(),
		Address: d.Address(),
		Subnets: d.Subnets, Lives: d.lives, Since: d.since, Holds: c.own.held != nil,
	}
	if !e.OurAddress.IsValid() {
		e.OurAddress = self.PublicIPv6
	}
	return e
}

// newTwin is the contest over a record with our identity that we do not recognise.
func (c *Core) newTwin(r lease.Record, s lease.Snapshot) contest {
	d := contest{Record: r, kind: overIdentity, need: silentLong}
	here := c.self().At(r.Attrs)
	if here || c.own.confirmed() || r.State() == c.o.State && c.o.State != "" {
		d.need = silentShort
	}
	d.underlay = !here && !c.own.confirmed() && !elsewhere(s, r)
	return d
}

// newForeign is the contest over a record of another identity in the place of ours.
func (c *Core) newForeign(r lease.Record, s lease.Snapshot) contest {
	d := contest{Record: r, need: silentShort, kind: overOurs}
	if !c.own.valid(c.Now) {
		d.kind, d.underlay = overSpent, !elsewhere(s, r)
	}
	return d
}

// elsewhere reports whether another node has been given the address of r since r was written.
func elsewhere(s lease.Snapshot, r lease.Record) bool {
	for _, other := range s.Records {
		if other.Node() != r.Node() && other.Address() == r.Address() && other.Revision > r.Revision {
			return true
		}
	}
	return false
}
