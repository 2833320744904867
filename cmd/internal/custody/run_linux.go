package custody

import (
	"context"
	"errors"
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
		ended := c.session
		if ended != nil {
			over = ended.over
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
			if c.retry(ctx, nil) {
				again = againFirst
			} else {
				again = min(2*again, againMost)
			}
		case <-over:
			again = againFirst
			c.retry(ctx, ended)
		}
	}
}

// retry has a holder keep everything if there is none and one is needed. ended is the session with one whose connection is over, nil if there was none.
// Nobody waits while a holder is asked whether it answers.
func (c *Custody) retry(ctx context.Context, ended *session) (kept bool) {
	pid := c.Status().PID
	if !c.needsHolder(ended) {
		return true
	}
	s, r, err := c.connect(ctx, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { close(c.trying); c.trying = nil }()
	if c.closed || c.held || c.session != nil || len(c.items) == 0 { // meanwhile
		if s != nil {
			s.close()
		}
		if s != nil && c.session != nil { // the other one is to be obeyed again
			if _, err := c.session.report(hello, c.session.owner); err != nil {
				c.lose(err)
			}
		}
		return true
	}
	defer c.publish()
	was := c.silent
	if err == nil {
		err = c.give(s, r)
	}
	switch {
	case err != nil && !errors.Is(err, errSilent):
		c.silent = nil
		fallthrough
	case err != nil && was == nil:
		if ended != nil {
			c.o.Logger.Warn("the holder of pods' descriptors has ended, and there is no other; a restart of weftd would now cut pods off; it is tried again", "pid", pid, "reason", err)
		}
		c.faults[""] = err
		return false
	case err != nil: // it is known to be silent, and said for each item
		return false
	case was != nil:
		c.o.Logger.Info("the holder of pods' descriptors answers again, and keeps everything", "pid", c.pid, "pods", len(c.items))
	case ended != nil:
		c.o.Logger.Warn("the holder of pods' descriptors had ended: another one keeps them", "before", pid, "pid", c.pid, "pods", len(c.items))
	}
	return true
}

// needsHolder says that something is to be kept and there is no session: then others wait until trying is closed. ended is the one that is over.
func (c *Custody) needsHolder(ended *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended != nil && c.session == ended { // whoever keeps things now: else Run would find it over again and again
		c.session, c.pid = nil, 0
	}
	if c.closed || c.held || c.manager != nil && c.manager.most > 0 {
		return false
	}
	if !c.wanted() || c.session != nil { // it ended because there was nothing to keep
		return false
	}
	c.trying = make(chan struct{})
	return true
}

// wanted reports whether a holder is to be started for what there is. mu is held.
func (c *Custody) wanted() bool {
	for name := range c.items {
		if !c.optional[name] || c.endsWithUs() == "" {
			return true
		}
	}
	return false
}
