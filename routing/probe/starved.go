package probe

import "time"

// A node that is not run, because it was stopped or because others have the processors, reads answers late
// and loses some: those are no faults of its peers.
const (
	// lateFrom is by how much a step comes late that says so.
	lateFrom = time.Second
	// catchUp is for how long nobody is asked then: what has waited is read meanwhile, here and in the data
	// plane.
	catchUp = 2 * time.Second
	// lookEvery is how often there is a step at the least, so that it can be late, and lookCatching the same
	// while the node catches up.
	lookEvery, lookCatching = 2 * time.Second, 500 * time.Millisecond
)

// look is when it is looked again whether this node is run; the zero time for not at all.
func (c *Core) look() time.Time {
	switch {
	case !c.blind.IsZero():
		return c.stepped.Add(lookCatching)
	case len(c.ways) > 0:
		return c.stepped.Add(lookEvery)
	}
	return time.Time{}
}

// notice takes in when a step comes, and finds out whether it should have come much sooner.
func (c *Core) notice(now time.Time) {
	c.stepped = now
	switch {
	case !c.wanted.IsZero() && now.Sub(c.wanted) >= lateFrom:
		c.blind = now.Add(catchUp)
		c.anew(now)
	case !c.blind.IsZero() && !now.Before(c.blind):
		c.blind = time.Time{}
		c.anew(now)
	}
}

// anew forgets the questions that are not answered, what was lost, and what has been concluded from either
// but not said yet.
func (c *Core) anew(now time.Time) {
	for _, w := range c.sorted {
		w.lossy, w.told = w.lossy && w.said.lossy, 0
		w.in, w.out, w.counted = window{session: w.in.session}, window{}, w.seq+1
		w.mtu.forgive()
		w.pad = 0
		if w.answers == No && w.said.answers == No {
			continue
		}
		if w.answers == No {
			w.answers, w.since = w.said.answers, now
		}
		w.silent, w.missed = time.Time{}, 0
		clear(w.asked)
	}
}
