package kube

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"weft/lease"
)

// Status is where the life stands; the caller owns it. Nothing in it ends by itself.
func (c *Life) Status(time.Time) lease.Status { return c.status() }

func (c *Life) status() lease.Status {
	s := c.lease()
	if s.Err == nil {
		s.Err = c.writer.err
	}
	return s
}

// lease is the status without what the last write met.
func (c *Life) lease() lease.Status {
	last, why := c.Peers.Last(), c.server.err()
	return lease.Status{
		State: c.standing.state, Own: c.held, Err: c.standing.cause, Notes: slices.Clone(c.standing.notes),
		StoreSeen: c.server.heard, StoreErr: why, StoreRefuses: Refuses(why), StoreSince: c.server.silent,
		ClusterID: c.Peers.Memory().ClusterID, Revision: c.view.revision,
		CacheErr: c.SaveErr(), Alarm: last.Alarm, Peers: len(last.Peers), Rejected: slices.Clone(last.Rejected),
	}
}

// enter sets the state and its cause, and logs a change of either.
func (c *Life) enter(state lease.State, notes []string, cause error) {
	before := c.standing
	c.standing = standing{state, cause, notes, c.held.Subnets}
	if !slices.Equal(before.notes, notes) {
		for _, n := range notes {
			c.Log(slog.LevelWarn, "not all of our Node is used", "note", n)
		}
	}
	if before.state == state && text(before.cause) == text(cause) && before.own == c.held.Subnets {
		return
	}
	if cause != nil && !errors.Is(cause, errNotWritten) {
		c.Log(slog.LevelWarn, "lease",
			"event", lease.EventState, "state", state.String(), "subnets", c.held.String(), "cause", cause)
		return
	}
	c.Log(slog.LevelInfo, "lease", "event", lease.EventState, "state", state.String(), "subnets",
		c.held.String())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
