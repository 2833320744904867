package lease

import (
	"fmt"
	"time"
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
func (p putBacks) quarrel() bool { return p.count > putBacksFree && time.Since(p.last) < putBackOver }

// putBack makes a write due that replaces what is at revision, 0 if nothing is there.
func (k *Keeper) putBack(revision int64, cluster string, reservation bool, what string) {
	if k.held.back && k.held.at == revision {
		return // it is due already
	}
	now, p := time.Now(), &k.putBacks
	if now.Sub(p.last) > putBackOver {
		*p = putBacks{}
	}
	p.count++
	p.last = now
	if p.count > putBacksFree {
		p.next = now.Add(min(backoff(p.count-putBacksFree, k.o.Rand), putBackMost))
		k.enter(Waiting, fmt.Errorf("our record %s %s, for the %dth time in short order: it is put back more seldom now: who writes it?", k.held.Subnets, what, p.count))
	}
	if now.Sub(p.said) > putBackSaid {
		p.said = now
		k.log.Warn("our record "+what+": putting it back", "subnets", k.held.Subnets.String(), "revision", revision, "times", p.count)
	}
	h := k.held
	h.at, h.back, h.cluster, h.Reservation, h.unsure = revision, true, cluster, reservation, nil
	k.written = Attrs{}
}
