package custody

import (
	"context"
	"time"
)

const (
	// stampEvery is how often the service manager's store is told that weftd lives, while it keeps something.
	stampEvery = 5 * time.Second
	// againFirst and againMost bound the time between attempts to start a holder.
	againFirst, againMost = time.Second, time.Minute
)

// Run starts another holder when the one that there is ends while something is kept, and gives it all again, until ctx ends.
// While nothing is kept it does nothing.
func (c *Custody) Run(ctx context.Context) error {
	again := againFirst
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		c.mu.Lock()
		var over <-chan struct{}
		var wait time.Duration
		if c.session != nil {
			over = c.session.over
		}
		if c.manager != nil && len(c.items) > 0 && !c.held {
			c.manager.stamp()
			wait = stampEvery
		}
		if len(c.faults) > 0 && wait == 0 && c.session == nil && c.socket != "" && c.o.Timeout > 0 {
			wait = again
		}
		c.mu.Unlock()
		if t.Stop(); wait > 0 {
			t.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			continue
		case <-t.C:
			if c.retry(ctx, false) {
				again = againFirst
			} else {
				again = min(2*again, againMost)
			}
		case <-over:
			c.retry(ctx, true)
		}
	}
}

// retry has a holder keep everything if there is none and one is needed. ended says that there was one until now.
func (c *Custody) retry(ctx context.Context, ended bool) (kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.held || c.manager != nil && c.manager.most > 0 {
		return true
	}
	if ended {
		c.session, c.pid = nil, 0
	}
	defer c.publish()
	if len(c.items) == 0 || c.session != nil {
		return true // it ended because there was nothing to keep
	}
	pid := c.Status().PID
	if err := c.another(ctx); err != nil {
		if ended {
			c.o.Logger.Warn("the holder of pods' descriptors has ended, and there is no other; a restart of weftd would now cut pods off; it is tried again", "pid", pid, "reason", err)
		}
		c.faults[""] = err
		return false
	}
	delete(c.faults, "")
	if ended {
		c.o.Logger.Warn("the holder of pods' descriptors had ended: another one keeps them", "before", pid, "pid", c.pid, "pods", len(c.items))
	}
	return true
}
