package tunnel

import (
	"slices"
	"sync/atomic"
	"time"
)

// A trial is a few sends of superpackets by either outlet, in turns of a block each. The first send of a block does not
// count, because it finds the caches cold; of the others' prices the median does, because an interrupt or another
// process in between costs more than any send.
const (
	trialBlock  = 4 // sends
	trialBlocks = 3 // of each outlet
	trialSends  = numOutlets * trialBlocks * trialBlock
	// trialLeast is the least superpacket that is sampled, in bytes: in smaller ones what a send costs at all hides what its bytes do.
	trialLeast = 16 << 10
	// trialEvery is the time between two trials, and trialAgain that before one which is to confirm the one before.
	trialEvery = 10 * time.Second
	trialAgain = 50 * time.Millisecond
	// trialProof is how many trials in a row must find the other outlet cheaper by a share of 1/trialMargin before it is taken. Medians
	// of nine sends in turns differed by a quarter on a busy machine where nothing was different.
	trialProof  = 3
	trialMargin = 5

	trialOpen  = 0 // is when a trial is due that is under way
	trialNever = 1<<63 - 1
)

// Prices that are none.
const (
	priceVoid   = 0       // the send did not leave by that outlet, for reasons that say nothing about it
	priceFailed = 1 << 62 // it was refused
)

// noTurn is the turn of a send that is not sampled.
const noTurn = -1

// choice is how the superpackets of one port leave, under one set of Outlets. Its workers share it, and any of them takes the next
// turn of a trial: all that changes is atomic, so that none waits for another. A trial that nobody goes on with, because there
// are no more large superpackets, stays open until there are.
type choice struct {
	outlets         Outlets
	now             atomic.Uint32 // the Outlet in use
	due             atomic.Int64  // when the next trial begins, Unix nanoseconds
	taken, done     atomic.Uint32 // turns of this trial
	price           [trialSends]atomic.Uint64
	found           [numOutlets]atomic.Uint64 // by the last trial
	won             atomic.Uint32             // trials in a row that were for the other outlet
	trials, changes atomic.Uint64
}

func newChoice(o Outlets) *choice {
	c := &choice{outlets: o}
	c.now.Store(uint32(o.First))
	c.taken.Store(trialSends)
	c.due.Store(trialNever)
	if o.Try {
		c.due.Store(1)
	}
	return c
}

// take says how a superpacket of size bytes leaves at now, in Unix nanoseconds. A turn that is not noTurn is given back by
// end.
func (c *choice) take(now int64, size int) (o Outlet, turn int) {
	o = Outlet(c.now.Load())
	due := c.due.Load()
	if now < due || size < trialLeast {
		return o, noTurn
	}
	if due != trialOpen && c.due.CompareAndSwap(due, trialOpen) {
		c.done.Store(0)
		c.taken.Store(0)
	}
	if i := c.taken.Add(1) - 1; i < trialSends {
		return turnOf(int(i)), int(i)
	}
	return o, noTurn // the last turns are under way
}

// turnOf is the outlet whose turn it is.
func turnOf(turn int) Outlet { return firstOutlet + Outlet(turn/trialBlock%numOutlets) }

// end says what the send of a turn cost, in picoseconds a byte. The last one of a trial settles it.
func (c *choice) end(turn int, price uint64, now int64) {
	c.price[turn].Store(price)
	if c.done.Add(1) == trialSends {
		c.due.Store(now + int64(c.settle()))
	}
}

// settle draws the conclusion from a trial, and returns when the next one is due.
func (c *choice) settle() time.Duration {
	for i := range c.found {
		c.found[i].Store(c.median(firstOutlet + Outlet(i)))
	}
	now := Outlet(c.now.Load())
	have, other := c.weighed(now), c.weighed(now.other())
	if have == priceVoid || other == priceVoid {
		return trialEvery
	}
	c.trials.Add(1)
	if other >= have-have/trialMargin {
		c.won.Store(0)
		return trialEvery
	}
	if c.won.Add(1) < trialProof {
		return trialAgain
	}
	c.won.Store(0)
	c.changes.Add(1)
	c.now.Store(uint32(now.other()))
	return trialEvery
}

// weighed is the price of an outlet that is compared.
func (c *choice) weighed(o Outlet) uint64 {
	price := c.found[o-firstOutlet].Load()
	if c.outlets.Trust && o == c.outlets.First {
		return (price + 1) / 2
	}
	return price
}

// median is that of the trial's prices of an outlet; priceVoid if too few turns had one.
func (c *choice) median(o Outlet) uint64 {
	var l [trialBlocks * (trialBlock - 1)]uint64
	n := 0
	for i := range c.price {
		if p := c.price[i].Load(); turnOf(i) == o && i%trialBlock != 0 && p != priceVoid {
			l[n] = p
			n++
		}
	}
	if n <= len(l)/2 {
		return priceVoid
	}
	slices.Sort(l[:n])
	return l[n/2]
}

func (c *choice) stats() OutletStats {
	s := OutletStats{Outlets: c.outlets, Now: Outlet(c.now.Load()), Trials: c.trials.Load(), Changes: c.changes.Load()}
	for i, p := range []*uint64{&s.Whole, &s.Runs} {
		if *p = c.found[i].Load(); *p == priceFailed {
			*p = 0
		}
	}
	return s
}
