package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// needsAcquire reports whether the store has no record that we know to be ours.
func (c *Core) needsAcquire() bool {
	return !c.duties.any(dutyVerify) && c.own.tenure != kept && c.own.tenure != ended
}

// pending reports whether there is work for the store, now or after the back-off.
func (c *Core) pending() bool {
	return c.contest != nil || c.duties != 0 || c.needsAcquire() || c.own.due(c.now, c.local.Attrs)
}

// notBefore is when the next piece of work may be done.
func (c *Core) notBefore() time.Time {
	at := c.retry
	if c.putBack.next.After(at) {
		at = c.putBack.next
	}
	if c.contest != nil && c.contest.next().After(at) {
		at = c.contest.next()
	}
	return at
}

// advance does the next piece of work with the store, if any is due. It ends in rest.
func (c *Core) advance() {
	switch {
	case !c.pending() || c.now.Before(c.notBefore()):
		c.rest(nil)
	case c.duties != 0 || c.needsAcquire():
		c.call(ReadStore{}, reading{})
	default:
		c.work()
	}
}

// reading waits for what the store holds, before something is written on the strength of it.
type reading struct{}

func (reading) done(c *Core, r Result) {
	if r.Err != nil {
		c.fail(fmt.Errorf("read the store: %w", r.Err))
		return
	}
	s := c.observe(r.Snapshot)
	c.duties.drop(dutyRead)
	switch {
	case c.duties.any(dutySeed):
		c.duties.drop(dutySeed)
		c.duties.add(dutyRead)
		c.call(WriteConfig{c.o.Seed}, seeding{})
	case c.contest != nil:
		c.inquire()
	case c.needsAcquire():
		c.acquire(s)
	case c.duties.any(dutyVerify):
		c.verify(s)
	default:
		c.work()
	}
}

// seeding waits for the configuration to be written.
type seeding struct{}

func (seeding) done(c *Core, r Result) { c.worked(r.Err) }

// work does what needs no read before it.
func (c *Core) work() {
	switch {
	case c.contest != nil:
		c.inquire()
	case c.now.Before(c.notBefore()): // what was read has put it off
		c.rest(nil)
	case c.own.due(c.now, c.local.Attrs):
		op, w := c.writing(c.own.held, c.own.held.Record)
		c.call(op, renewing{w})
	default:
		c.succeed()
		c.rest(nil)
	}
}

// worked ends a piece of work.
func (c *Core) worked(err error) {
	if err != nil {
		c.fail(err)
		return
	}
	c.rest(nil)
}

// renewing waits for the held record to be written: renewed, put back, or brought up to date.
type renewing struct{ write write }

func (e renewing) done(c *Core, r Result) {
	if err := c.wrote(e.write, r); err != nil {
		c.fail(err)
		return
	}
	if !c.duties.any(dutyVerify) {
		c.own.tenure = kept
	}
	c.schedule()
	c.succeed()
	c.rest(nil)
}

// acquire claims a subnet on the strength of s.
func (c *Core) acquire(s Snapshot) {
	var changed *ConfigChangedError
	if c.own.tenure == seeking && errors.As(c.store.configErr, &changed) {
		c.fail(changed)
		return
	}
	claim, err := Plan(Request{
		Config: c.o.Config, Self: c.self(), Records: values(s.Records), Bad: s.Bad, Twins: c.twins(s),
		Previous: c.own.previous, Avoid: slices.Concat(c.local.Underlay, c.local.Store), Rand: c.o.Rand,
	})
	if err == nil && claim.Kind == ClaimFree && s.Config == nil {
		err = ErrNoConfig
	}
	if err != nil {
		c.fail(err)
		return
	}
	h := &holding{Record: claim.Current, cluster: s.ClusterID, at: claim.Current.Revision}
	created := claim.Current.Revision == 0
	if h.Subnets != claim.Subnets { // a new key
		h.Subnets, h.Revision, h.at, created = claim.Subnets, 0, 0, true
		h.Attrs = Attrs{} // to be written, whatever the old one says
	}
	if h.Reservation && h.Attrs.Equal(c.local.Attrs) {
		c.own.written = c.local.Attrs
		c.take(claiming{claim: claim, created: created}, h)
		return
	}
	op, w := c.writing(h, claim.Current)
	c.call(op, claiming{w, claim, created})
}

// claiming waits for the record of a claim to be written.
type claiming struct {
	write   write
	claim   Claim
	created bool // under a key of its own, so that another may have been created beside it
}

func (e claiming) done(c *Core, r Result) {
	if err := c.wrote(e.write, r); err != nil {
		c.fail(err)
		return
	}
	c.take(e, e.write.holding)
}

// take makes h, which is in the store, what we hold.
func (c *Core) take(e claiming, h *holding) {
	c.log(slog.LevelInfo, "lease acquired", "subnets", h.Subnets.String(), "how", e.claim.Kind, "reasons", e.claim.Reasons)
	c.notes = e.claim.Reasons
	c.own.held, c.own.previous = h, h.Subnets
	if e.created {
		c.duties.add(dutyVerify)
	} else {
		c.own.tenure = kept
	}
	c.schedule()
	c.release(e.claim.Release)
}

// release removes records of ours that no longer fit. Nothing depends on it.
func (c *Core) release(surplus []Record) {
	if len(surplus) > 0 {
		c.call(DeleteRecord{surplus[0].Subnets, surplus[0].Revision}, releasing{surplus})
		return
	}
	if !c.duties.any(dutyVerify) {
		c.succeed()
	}
	c.rest(nil)
}

// releasing waits for the first of the records to be deleted.
type releasing struct{ surplus []Record }

func (e releasing) done(c *Core, r Result) {
	if gone := e.surplus[0].Subnets; r.Err != nil {
		c.log(slog.LevelWarn, "surplus record stays until it expires", "subnets", gone.String(), "cause", fmt.Errorf("delete %s: %w", gone, r.Err))
	}
	c.release(e.surplus[1:])
}

// verify reads once more after a record was created, and yields to one that was there first.
func (c *Core) verify(s Snapshot) {
	c.duties.drop(dutyVerify)
	err := c.own.held.beaten(c.self(), s)
	if err == nil {
		c.own.tenure = kept
		c.succeed()
		c.rest(nil)
		return
	}
	gone := c.own.held.Record
	c.own.drop(beaten)
	c.call(DeleteRecord{gone.Subnets, gone.Revision}, yielding{gone.Subnets, err})
}

// yielding waits for a record to be deleted that was not the first.
type yielding struct {
	subnets Subnets
	why     error
}

func (e yielding) done(c *Core, r Result) {
	if r.Err != nil {
		e.why = errors.Join(e.why, fmt.Errorf("delete %s: %w", e.subnets, r.Err))
	}
	c.fail(e.why)
}
