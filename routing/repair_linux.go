package routing

import (
	"context"
	"time"

	"weft/routing/internal/kernel"
)

// retryFirst and retryLast bound the wait after an attempt that failed; resync is
// how often all is compared without reason. tidy is the least time between two reconciles:
// a burst of notifications costs one, and a quarrel with another program ten a second.
const (
	retryFirst = 200 * time.Millisecond
	retryLast  = 30 * time.Second
	resync     = 30 * time.Second
	tidy       = 100 * time.Millisecond
)

// repair reconciles after every notification and failure, and now and then, until
// ctx ends.
func (c *Node) repair(ctx context.Context) {
	timer := time.NewTimer(resync)
	defer timer.Stop()
	retry := retryFirst
	for {
		var ch kernel.Change
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
			ch = kernel.Change(c.dirty.Swap(0))
		case <-timer.C:
			ch = kernel.ChangedAll
		case <-c.askAgain():
			c.mu.Lock()
			c.plane.Refuse()
			c.mu.Unlock()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		whole, pause, err := c.settle(ctx, ch)
		wait := resync
		if err != nil {
			wait, retry = retry, min(2*retry, retryLast)
		} else if whole {
			retry = retryFirst
		}
		wait = c.sooner(wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if whole { // else the wait for the next try goes on
			timer.Reset(wait)
		}
	}
}

// sooner is wait, or how long it is until the driver's next turn if that is less.
func (c *Node) sooner(wait time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if later := time.Until(c.driver.next()); later > 0 {
		// else its turn was missed for a reason that passes with the reconcile
		return min(wait, max(tidy, later))
	}
	return wait
}

// settle does what a change makes necessary: if only next hops may have changed, it reads no more than these.
// whole says that everything was reconciled, and pause how long the next change has to wait.
func (c *Node) settle(ctx context.Context, ch kernel.Change) (whole bool, pause time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halted { // Resume looks at everything
		return false, tidy, nil
	}
	if c.plane != nil {
		c.plane.AskingTook() // what a reconcile took before is over
	}
	if whole = ch&kernel.ChangedObjects != 0; !whole && c.plane != nil {
		whole = c.plane.UpdateNextHops(c.cfg.Underlay.Name, ch) != nil
		c.watch()
	}
	if whole {
		err = c.reconcile(ctx, ch)
	}
	if pause = tidy; c.plane != nil {
		pause = max(pause, 10*c.plane.AskingTook()) // with 10,000 peers, asking for routes is work
	}
	return whole, pause, err
}
