package lease

import (
	"context"
	"time"
)

// Underlay is what a keeper asks whether a node can be reached, beside the store.
type Underlay interface {
	// Answers reports whether the node that publishes a answers over the underlay, itself or the
	// kernel for it, from another machine than this one. It takes no longer than ctx, and is false
	// if that cannot be learnt. It is called from goroutines of their own.
	Answers(ctx context.Context, a Attrs) bool
}

// How it is found out whether another owner lives.
const (
	// answerWait is how long a round of asking lasts: the question's way through the store to
	// the other's watch and back, and three echo requests.
	answerWait = 1500 * time.Millisecond
	// roundPause is the time between rounds without an answer.
	roundPause = time.Second
	// silentLong is how many rounds without an answer make a stranger silent, silentShort how
	// many suffice if our state directory or our address says that we were there before.
	silentLong, silentShort = 3, 1
	// againFirst and againMost bound the time between two questions to one who lives.
	againFirst, againMost = 2 * time.Second, 10 * time.Second
)

// What is known of how the other owner lives.
const (
	livesInStore    = "it answers in the store"
	livesOnUnderlay = "its address answers"
)

// contest is about a record that stands where ours should: nothing is written before it is known
// whether its owner lives.
type contest struct {
	Record
	// twin says that it has our identity.
	twin bool
	// yields says that we have no claim but that our pods are there: if the owner lives, it is
	// the owner.
	yields bool
	// gone says that the record, whose owner lived, has vanished since.
	gone bool
	// underlay says that an answer over the underlay counts: not for a record of ours that was
	// written over, since any address can be written there.
	underlay bool
	// need is how many rounds without an answer are enough.
	need int

	since  time.Time // when we met it first
	asked  bool      // a round is under way
	number int       // of the round, so that a late answer is told
	next   time.Time // when the round ends, or the next one begins
	heard  string    // how an answer came in this round; "" for none
	lives  string    // the same of the last round with one
	silent int       // rounds without, in a row
	waits  int       // rounds with, in a row
}

// same reports whether both are about the same matter, and so what is known of one holds.
func (c *contest) same(d *contest) bool {
	return c.Subnets == d.Subnets && c.twin == d.twin && c.yields == d.yields && c.Node() == d.Node()
}

// contend notes that r is in our place. before is what was known until now, nil for nothing.
func (k *Keeper) contend(before *contest, c contest) {
	c.since = time.Now()
	if before != nil && before.same(&c) {
		if before.Revision != c.Revision { // somebody writes it
			before.silent = 0
		}
		before.Record, before.gone = c.Record, false
		before.underlay, before.need = c.underlay, c.need
		c = *before
	}
	k.contest = &c
	k.enter(Waiting, k.contestError())
}

// contestError describes the contest that there is.
func (k *Keeper) contestError() error {
	c, self := k.contest, k.self()
	e := &ContestError{
		Ours: self.Node, OurAddress: self.PublicIP, Theirs: c.Node(), Address: c.Address(),
		Subnets: c.Subnets, Lives: c.lives, Since: c.since, Holds: k.held != nil,
	}
	if !e.OurAddress.IsValid() {
		e.OurAddress = self.PublicIPv6
	}
	return e
}

// newTwin is the contest over a record with our identity that we do not recognise.
func (k *Keeper) newTwin(r Record, s Snapshot) contest {
	c := contest{Record: r, twin: true, need: silentLong}
	here := k.self().at(r.Attrs)
	if here || k.confirmedHolder() || r.State() == k.o.State && k.o.State != "" {
		c.need = silentShort
	}
	c.underlay = !here && !k.confirmedHolder() && !elsewhere(s, r)
	return c
}

// newForeign is the contest over a record of another identity in the place of ours.
func (k *Keeper) newForeign(r Record, s Snapshot) contest {
	c := contest{Record: r, need: silentShort, yields: !k.valid()}
	c.underlay = c.yields && !elsewhere(s, r)
	return c
}

// confirmedHolder reports whether a store has had our record since the start.
func (k *Keeper) confirmedHolder() bool { return k.held != nil && k.held.cluster != "" }

// valid reports whether the store has had our record since the start, and it has not run out.
func (k *Keeper) valid() bool {
	return k.confirmedHolder() && (k.held.Reservation || time.Now().Before(k.held.Expires))
}

// elsewhere reports whether another node has been given the address of r since r was written.
func elsewhere(s Snapshot, r Record) bool {
	for _, other := range s.Records {
		if other.Node() != r.Node() && other.Address() == r.Address() && other.Revision > r.Revision {
			return true
		}
	}
	return false
}
