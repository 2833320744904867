package keeper

import (
	"errors"
	"time"

	"weft/lease"
)

// racesMost is how many races in a row are retried at once; then it is no race.
const racesMost = 50

// succeed ends a run of failures.
func (c *Core) succeed() {
	c.failing, c.races, c.retry = 0, 0, time.Time{}
	c.cause = nil
}

// fail sets when to try again, and notes why.
func (c *Core) fail(err error) {
	if c.phase == stopping {
		return
	}
	if errors.Is(err, lease.ErrConflict) && c.races < racesMost {
		c.races++
		c.retry = c.Now.Add(raceBackoff(c.races, c.Rand))
		c.finish()
		return
	}
	c.failing++
	c.retry = c.Now.Add(c.Backoff(c.failing, backoffFirst, backoffMost))
	var rival *lease.RivalError
	if errors.As(err, &rival) {
		c.call(ReadRemaining{rival.Subnets}, func(r Result) {
			if r.Err == nil {
				rival.Remaining = r.Remaining // which is in err
			}
			c.failed(err)
		})
		return
	}
	if !answered(err) {
		c.storeSilent(err)
	}
	c.failed(err)
}

func (c *Core) failed(err error) {
	c.cause = err
	if c.own.tenure == tenureHeld && c.own.overdue(c.Now) {
		c.own.tenure = tenureEnded
	}
	c.finish()
}

// answered reports whether err came of what the store says, not of its silence.
func answered(err error) bool {
	return errors.Is(err, lease.ErrConflict) || errors.Is(err, lease.ErrRefused) ||
		errors.Is(err, ErrNoConfig) || final(err)
}

// final reports whether err stays until somebody changes the store or a node.
func final(err error) bool {
	var rival *lease.RivalError
	var only *lease.IPv6OnlyError
	var contest *lease.ContestError
	var changed *ConfigChangedError
	return errors.As(err, &rival) || errors.As(err, &only) || errors.As(err, &contest) ||
		errors.As(err, &changed) || errors.Is(err, lease.ErrOutOfSubnets)
}
