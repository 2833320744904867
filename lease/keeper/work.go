package keeper

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"weft/lease"
	"weft/lease/belief"
)

// needsAcquire reports whether the store has no record that we know to be ours.
func (c *Core) needsAcquire() bool {
	return !c.duties.any(dutyVerify) && c.own.tenure != tenureHeld && c.own.tenure != tenureEnded
}

// pending reports whether there is work for the store, now or after the back-off.
func (c *Core) pending() bool {
	return c.contest != nil || c.duties != 0 || c.needsAcquire() || c.own.due(c.Now, c.Local.Attrs)
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

// nextWork does the next piece of work with the store, if any is due. It ends in finish.
func (c *Core) nextWork() {
	switch {
	case !c.pending() || c.Now.Before(c.notBefore()):
		c.finish()
	case c.duties != 0 || c.needsAcquire():
		c.call(ReadStore{}, c.read)
	default:
		c.work()
	}
}

// read goes on with what the store holds, which is read before something is written on the strength of it.
func (c *Core) read(r Result) {
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
		c.call(WriteConfig{c.o.Seed}, c.seeded)
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

// work does what needs no read before it.
func (c *Core) work() {
	switch {
	case c.contest != nil:
		c.inquire()
	case c.Now.Before(c.notBefore()): // what was read has put it off
		c.finish()
	case c.own.due(c.Now, c.Local.Attrs):
		c.renew()
	default:
		c.succeed()
		c.finish()
	}
}

// renew writes the held record. If it is put back, it takes the place of what silent owners have of its
// subnets under other keys.
func (c *Core) renew() {
	h := c.own.held
	old := h.Record
	if h.at == 0 && len(h.beside) > 0 {
		if old = h.beside[0]; !isSilent(c.cleared, old) { // the store was away since, and the owner may be back
			c.call(ReadStore{}, c.read)
			return
		}
	}
	if h.at == 0 && len(h.beside) > 1 { // one transaction replaces one
		c.duties.add(dutyRead)
		c.call(DeleteRecord{old.Subnets, old.Revision}, func(r Result) {
			if r.Err != nil {
				c.fail(fmt.Errorf("delete %s: %w", old.Subnets, r.Err))
				return
			}
			c.finish()
		})
		return
	}
	op, w := c.writing(h, old)
	c.call(op, func(r Result) { c.renewed(w, r) })
}

// seeded goes on when the configuration was written.
func (c *Core) seeded(r Result) {
	if r.Err != nil {
		c.fail(r.Err)
		return
	}
	c.finish()
}

// renewed goes on when the held record was written: renewed, put back, or brought up to date. One that was
// put back where nothing was is a new record to the store: another may have been created beside it, which in
// dual stack can have a part of our subnets.
func (c *Core) renewed(w write, r Result) {
	created := w.holding.at == 0
	if err := c.wrote(w, r); err != nil {
		c.fail(err)
		return
	}
	if !c.duties.any(dutyVerify) {
		c.own.tenure = tenureHeld
	}
	c.schedule()
	if created {
		w.holding.Created = r.Revision
		c.doubt(w.holding)
	}
	c.succeed()
	c.finish()
}

// acquire claims a subnet on the strength of s.
func (c *Core) acquire(s lease.Snapshot) {
	var changed *ConfigChangedError
	if c.own.tenure == tenureSeeking && errors.As(c.store.configErr, &changed) {
		c.fail(changed)
		return
	}
	claim, err := Plan(Request{
		Config: c.o.Config, Self: c.self(), Records: belief.Values(s.Records), Bad: s.Bad, Twins: c.twins(s),
		Previous: c.own.previous, Avoid: slices.Concat(c.Local.Underlay, c.Local.Store), Rand: c.Rand,
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
		h.Subnets, h.Revision, h.Created, h.at, created = claim.Subnets, 0, 0, 0, true
		h.Attrs = lease.Attrs{} // to be written, whatever the old one says
	}
	if h.Reservation && h.Attrs.Equal(c.Local.Attrs) {
		c.own.written = c.Local.Attrs
		c.take(claim, h, created)
		return
	}
	op, w := c.writing(h, claim.Current)
	c.call(op, func(r Result) {
		if err := c.wrote(w, r); err != nil {
			c.fail(err)
			return
		}
		c.take(claim, h, created)
	})
}

// take makes h, which is in the store, what we hold. If it was created, under a key of its own, another may
// have been created beside it.
func (c *Core) take(claim Claim, h *holding, created bool) {
	c.Log(slog.LevelInfo, "lease acquired",
		"event", lease.EventAcquired, "subnets", h.Subnets.String(), "how", claim.Kind, "reasons", claim.Reasons)
	c.notes = claim.Reasons
	c.own.held, c.own.previous = h, h.Subnets
	if created {
		c.duties.add(dutyVerify)
	} else {
		c.own.tenure = tenureHeld
		if was := claim.Current; was.Created != 0 && was.Created == was.Revision {
			// by a write of ours that was not answered
			c.doubt(h)
		}
	}
	c.schedule()
	c.release(claim.Release)
}

// release removes records of ours that no longer fit. Nothing depends on it.
func (c *Core) release(surplus []lease.Record) {
	if len(surplus) > 0 {
		gone := surplus[0]
		c.call(DeleteRecord{gone.Subnets, gone.Revision}, func(r Result) {
			if r.Err != nil {
				c.Log(slog.LevelWarn, "surplus record stays until it expires",
					"subnets", gone.Subnets.String(),
					"cause", fmt.Errorf("delete %s: %w", gone.Subnets, r.Err))
			}
			c.release(surplus[1:])
		})
		return
	}
	if !c.duties.any(dutyVerify) {
		c.succeed()
	}
	c.finish()
}

// doubt has what we hold, and go on to say that we hold, verified if another record than ours can have a part
// of it.
func (c *Core) doubt(h *holding) {
	if h.V4.IsValid() && h.V6.IsValid() {
		c.duties.add(dutyVerify)
	}
}

// verify reads once more after a record was created, and yields to one that was there first.
func (c *Core) verify(s lease.Snapshot) {
	c.duties.drop(dutyVerify)
	err := c.own.held.beaten(c.self(), s, c.own.tenure == tenureHeld)
	if err == nil {
		c.own.tenure = tenureHeld
		c.succeed()
		c.finish()
		return
	}
	gone := c.own.held.Record
	gone.Revision = c.own.held.at
	c.own.drop(tenureRaceLost)
	c.call(DeleteRecord{gone.Subnets, gone.Revision}, func(r Result) {
		if r.Err != nil {
			err = errors.Join(err, fmt.Errorf("delete %s: %w", gone.Subnets, r.Err))
		}
		c.fail(err)
	})
}
