package routecontrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"weft/routing/routehook"
)

// Programmer puts routes in place.
type Programmer interface {
	// Program is one round. It is given all routes that are wanted, no two of which overlap; with keep it
	// removes none. It reads what there is, changes what differs, and returns by subnet why a route is not in
	// place: an error that wraps ErrPending where a later round is expected to find it there, another one where
	// somebody has to mend something. A route that it does not mention is in place. If it could not look at all
	// it returns an error, and what was found before stands. Rounds are made one at a time; ctx ends with the
	// controller.
	Program(ctx context.Context, want []routehook.Route, keep bool) (map[netip.Prefix]error, error)
}

// ErrPending is wrapped by what Program says of a route that nobody has to do anything about.
var ErrPending = errors.New("not in place yet")

// why is an error in words for people, who have the state beside them: without those of ErrPending at its
// end.
func why(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+ErrPending.Error())
}

// Waits between rounds.
const (
	// pendingFirst is the first wait while a route is pending. It doubles until it is Options.Again.
	pendingFirst = time.Second
	// failedFirst and failedLast bound the wait after a round that could not look. New views do not shorten it.
	failedFirst, failedLast = time.Second, time.Minute
)

// Stats are what a controller has and did.
type Stats struct {
	// Views are those that count.
	Views int
	// Accepted, Pending and Refused count what the last round that could look found.
	Accepted, Pending, Refused int
	// Rounds and Failed count rounds, and those of them that could not look.
	Rounds, Failed uint64
	// Took is how long the last round was, and Looked when the last one ended that could look; zero if none has.
	Took   time.Duration
	Looked time.Time
	// Fault says why the last round could not look; "" if it did.
	Fault string
}

// Stats returns the current ones. It is safe for concurrent use.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Views = len(c.views)
	return s
}

// Run makes rounds until ctx ends: when views change, when their time is over, and now and then, since
// somebody else may have changed what is there. It always returns nil.
func (c *Controller) Run(ctx context.Context) error {
	var wait time.Duration // of a row of pending or of failed rounds
	for {
		pending, err := c.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		next, wake := c.o.Again, c.wake
		switch {
		case err != nil:
			wait = min(max(2*wait, failedFirst), failedLast)
			next, wake = wait, nil
		case pending:
			wait = min(max(2*wait, pendingFirst), c.o.Again)
			next = wait
		default:
			wait = 0
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ask has a round made, or another one if one is at work already, and returns what is closed when it is over.
// mu is held.
func (c *Controller) ask() <-chan struct{} {
	select {
	case c.wake <- struct{}{}:
	default: // it is to wake up already
	}
	return c.next
}

// await returns when a round is over, when Options.Wait has passed, or with ctx.
func (c *Controller) await(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-time.After(c.o.Wait):
	case <-ctx.Done():
	}
}

// merged returns the set that the views ask for. mu is held.
func (c *Controller) merged() *merged {
	if c.all == nil {
		c.all = merge(c.views, c.o.Now())
	}
	return c.all
}

// round has the views that count put in place, and reports whether a route is pending. The Programmer works
// without the lock.
func (c *Controller) round(ctx context.Context) (pending bool, err error) {
	c.mu.Lock()
	now := c.o.Now()
	keep := c.expire(now)
	select {
	case <-c.wake: // this round is the one that was asked for
	default:
	}
	c.all = nil // what is wanted depends on the time too
	want, over := c.merged().routes, c.next
	c.next = make(chan struct{})
	c.forget(want, keep)
	c.mu.Unlock()

	faults, err := c.o.Programmer.Program(ctx, want, keep)
	if ctx.Err() != nil {
		return false, ctx.Err() // it was interrupted, which says nothing
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(over)
	end := c.o.Now()
	c.stats.Rounds++
	c.stats.Took = end.Sub(now)
	if err != nil {
		c.failed(want, err)
		return false, err
	}
	c.stats.Looked, c.stats.Fault = end, ""
	return c.found(want, faults), nil
}

// forget drops what was found of the routes that a round with want is about to remove: a view may have one of
// them again before the round is over, and what an earlier round found is no answer to that. mu is held.
func (c *Controller) forget(want []routehook.Route, keep bool) {
	hops := make(map[netip.Prefix]netip.Addr, len(want))
	for _, r := range want {
		hops[r.Subnet] = r.NextHop
	}
	for subnet, p := range c.places {
		if hop, wanted := hops[subnet]; wanted && hop != p.hop || !wanted && !keep {
			delete(c.places, subnet)
		}
	}
}

// failed notes a round that could not look. Earlier results stand: they are as true as they were. A route of
// which nothing was found is pending, as packets may well pass by what an earlier process put in place. mu is
// held.
func (c *Controller) failed(want []routehook.Route, err error) {
	if c.stats.Failed++; c.stats.Fault != why(err) {
		level := slog.LevelError
		if errors.Is(err, ErrPending) {
			level = slog.LevelWarn // it passes by itself
		}
		c.o.Logger.Log(context.Background(), level, "the routes cannot be looked at", "error", why(err))
	}
	c.stats.Fault = why(err)
	if !errors.Is(err, ErrPending) {
		err = fmt.Errorf("%w: %w", err, ErrPending)
	}
	for _, r := range want {
		if p, known := c.places[r.Subnet]; !known || p.hop != r.NextHop {
			c.places[r.Subnet] = placed{r.NextHop, err}
		}
	}
}

// found notes what became of all routes, says what is other than before, and reports whether one is pending.
// mu is held.
func (c *Controller) found(want []routehook.Route, faults map[netip.Prefix]error) (pending bool) {
	places := make(map[netip.Prefix]placed, len(want))
	c.stats.Accepted, c.stats.Pending, c.stats.Refused = 0, 0, 0
	for _, r := range want {
		p := placed{r.NextHop, faults[r.Subnet]}
		places[r.Subnet] = p
		delete(faults, r.Subnet)
		old := c.places[r.Subnet]
		switch {
		case p.err == nil:
			c.stats.Accepted++
			if old.hop != p.hop || old.err != nil {
				c.o.Logger.Info("route in place", "subnet", r.Subnet, "next_hop", r.NextHop, "node", r.Name)
			}
		case errors.Is(p.err, ErrPending):
			c.stats.Pending++
			pending = true
		default:
			c.stats.Refused++
			if old.err == nil || old.err.Error() != p.err.Error() {
				c.o.Logger.Error("route refused", "subnet", r.Subnet, "next_hop", r.NextHop, "node", r.Name,
					"reason", p.err)
			}
		}
	}
	c.places = places
	for subnet, err := range faults { // of those that are not wanted any more
		pending = pending || errors.Is(err, ErrPending)
		c.o.Logger.Warn("a route that is not wanted", "subnet", subnet, "reason", why(err))
	}
	return pending
}
