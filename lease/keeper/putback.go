package keeper

import (
	"fmt"
	"log/slog"
	"time"

	"weft/lease"
)

// Our record is put back at once; but who writes over it again and again is met more and more
// seldom, until it was left alone for putBackOver.
const (
	putBackOver  = 10 * time.Minute
	putBacksFree = 6
	putBackMost  = 10 * time.Second
	putBackSaid  = time.Minute // between two lines in the log
)

// putBacks is how often our record had to be put back lately.
type putBacks struct {
	count int
	last  time.Time // when we last saw it written over
	said  time.Time // when the log last said so
	next  time.Time // no write before this
}

// quarrel reports whether somebody writes over our record again and again.
func (p *putBacks) quarrel(now time.Time) bool {
	return p.count > putBacksFree && now.Sub(p.last) < putBackOver
}

// displaced makes a write due that replaces what is at revision, 0 if nothing is there.
func (c *Core) displaced(revision int64, cluster string, reservation bool, what string) {
	h := c.own.held
	if h.back && h.at == revision {
		return // it is due already
	}
	p := &c.putBack
	if c.Now.Sub(p.last) > putBackOver {
		*p = putBacks{}
	}
	p.count++
	p.last = c.Now
	if p.count > putBacksFree {
		p.next = c.Now.Add(min(c.Backoff(p.count-putBacksFree, backoffFirst, backoffMost), putBackMost))
		c.cause = fmt.Errorf("our record %s %s, for the %dth time in short order: it is put back more seldom "+
			"now: who writes it?", h.Subnets, what, p.count)
	}
	if c.Now.Sub(p.said) > putBackSaid {
		p.said = c.Now
		c.Log(slog.LevelWarn, "our record "+what+": putting it back",
			"event", lease.EventPutBack, "subnets", h.Subnets.String(), "revision", revision, "times", p.count)
	}
	if h.cluster != cluster { // as after a start from the cache: what we had there counts in no store
		h.Revision, h.seen = 0, 0
	}
	h.at, h.back, h.cluster, h.Reservation, h.unsure = revision, true, cluster, reservation, nil
	c.own.written = lease.Attrs{}
}
