package keeper

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"weft/lease"
)

// state is where our lease stands at now. Nothing stores it.
func (c *Core) state(now time.Time) lease.State {
	if c.contest != nil || now.Before(c.putBack.next) {
		return lease.Waiting
	}
	switch c.own.tenure {
	case tenureSeeking, tenureRaceLost:
		return lease.Acquiring
	case tenureLost:
		return lease.Lost
	case tenureFromCache:
		return lease.Unconfirmed
	case tenureHeld:
		if !c.own.overdue(now) && (c.own.held.at != 0 || c.cause == nil) { // without a cause it is being put back
			return lease.Held
		}
	case tenureEnded, tenureGone:
	}
	return lease.Expired
}

// record is our record, as far as it is sure that it is ours; its Subnets are zero if there is none.
func (c *Core) record() lease.Record {
	if c.own.tenure == tenureHeld || !c.duties.any(dutyVerify) {
		return c.own.record()
	}
	return c.Peers.Last().Own
}

// err is why the state is not Held, or what the last write met. A contest is told whatever the store says of
// calls meanwhile, which Status.StoreErr has.
func (c *Core) err() error {
	if c.contest != nil {
		return c.contestError()
	}
	return c.cause
}

// Status returns the state of the lease at now; the caller owns it. It lacks the time at which the store was
// last heard beside the calls, which only the store knows.
func (c *Core) Status(now time.Time) lease.Status {
	st := &c.store
	last := c.Peers.Last()
	return lease.Status{
		State: c.state(now), Own: c.record(), Err: c.err(), Notes: slices.Clone(c.notes),
		StoreSeen: st.seen, StoreErr: st.err, ClusterID: st.clusterID, Revision: st.revision,
		CacheErr: c.SaveErr(), Alarm: last.Alarm, Peers: len(last.Peers), Rejected: slices.Clone(last.Rejected),
		ConfigErr: st.configErr, StoreConfig: st.config, ConfigSeen: st.asked,
	}
}

// standing is what makes a change of the state worth a line in the log.
type standing struct {
	state   lease.State
	cause   string
	subnets lease.Subnets
}

func (c *Core) standing() standing {
	return standing{c.state(c.Now), causeText(c.err()), c.record().Subnets}
}

// say logs where we stand, if it is not what the log had last.
func (c *Core) say() {
	now := c.standing()
	if now == c.said {
		return
	}
	c.said = now
	level, args := slog.LevelInfo, []any{"event", lease.EventState, "state", now.state.String(), "subnets",
		now.subnets.String()}
	if err := c.err(); err != nil {
		level, args = slog.LevelWarn, append(args, "cause", err)
	}
	if c.putBack.quarrel(c.Now) {
		level = slog.LevelDebug // it goes on and on
	}
	c.Log(level, "lease", args...)
}

// causeText is what makes a cause a new one: not how long a rival's record still lives.
func causeText(err error) string {
	var rival *lease.RivalError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &rival):
		still := *rival
		still.Remaining = 0
		return still.Error()
	}
	return err.Error()
}
