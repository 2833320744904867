package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"weft/cmd/internal/events"
	"weft/lease"
	"weft/routing"
	"weft/routing/presence"
)

// errFootingChanged is the error of a generation whose footing turned out to be outdated.
var errFootingChanged = errors.New("the node is not what it was")

// attempt is a footing that is to be served.
type attempt struct {
	footing footing
	// good says that it is the last good one; whether another one works is not known yet. cached is the set
	// that was saved with it. It is nil once a generation has taken it, since in a large network it is large.
	good   bool
	cached *lease.Cached
	// opened is the generation for it, if that has been made already.
	opened *generation
}

// serveFootings serves one footing after the other until ctx ends.
func (d *Daemon) serveFootings(ctx context.Context) error {
	a := d.takeCached()
	for {
		if a == nil {
			f, err := d.waitFooting(ctx)
			if err != nil {
				return nil // ctx ended
			}
			a = &attempt{footing: f}
		}
		g := a.opened
		if g == nil {
			var err error
			var taken *presence.HostTakenError
			if g, err = d.newGeneration(ctx, a.footing, a.cached); errors.As(err, &taken) {
				return err // the fault is this host's, so that another configuration would not help
			} else if err != nil && d.arrival.Pending() {
				return err // the program before goes on
			} else if err != nil {
				if a, err = d.notOpened(ctx, a, err); err != nil {
					return err
				}
				if ctx.Err() != nil {
					return nil
				}
				continue
			}
		}
		a.cached = nil
		err := d.serve(ctx, g)
		if taken := (*presence.HostTakenError)(nil); errors.As(err, &taken) {
			return err
		}
		if ctx.Err() != nil {
			closeNext(err)
			return nil
		}
		if d.arrival.Pending() {
			return err
		}
		d.setGeneration(nil)
		if a, err = d.after(a, err); err != nil {
			return err
		}
	}
}

// takeCached returns the attempt with what the last run saved, once, for the first attempt of this run.
func (d *Daemon) takeCached() *attempt {
	f, cached := d.recalled, d.cached
	d.cached = nil // in a large network it is large, and soon outdated
	if cached == nil {
		return nil
	}
	return &attempt{footing: f, good: true, cached: cached}
}

// lastGood returns the attempt with the last configuration that worked and the set that was saved with it, nil if
// there is none.
func (d *Daemon) lastGood() *attempt {
	c, err := d.cache.Load()
	if err != nil {
		return nil
	}
	f, err := d.source.recall(c)
	if err != nil {
		d.log.Debug("there is no last good configuration", "reason", err)
		return nil
	}
	return &attempt{footing: f, good: true, cached: &c}
}

// closeNext frees the generation that was to take the place of one that ended with err, if there is such a one.
func closeNext(err error) {
	var next *takeUp
	if errors.As(err, &next) {
		next.generation.close()
	}
}

// after says what follows a generation that served a and ended with err.
func (d *Daemon) after(a *attempt, err error) (*attempt, error) {
	var next *takeUp
	var unfit *unfitError
	switch {
	case errors.As(err, &next):
		d.log.Info("taking up the network configuration", "event", events.Config, "of", d.source.where(), "config", string(routing.WithoutSecrets(next.generation.footing.raw)))
		return &attempt{footing: next.generation.footing, opened: next.generation}, nil
	case errors.Is(err, errFootingChanged):
		d.log.Info("starting over", "event", events.Config, "because", err)
		return nil, nil
	case !a.good:
		good := d.lastGood()
		if good == nil {
			return nil, err
		}
		if !errors.As(err, &unfit) || !unfit.again {
			d.refuse(a.footing.raw, err, false)
		}
		d.log.Error("the network configuration cannot be served: going back to the last good one", "event", events.Config, "cause", err)
		return good, nil
	}
	return nil, err
}

// waitOpen is the time between attempts to make a backend while none is.
const waitOpen = 5 * time.Second

// notOpened says what to try after a, whose generation could not be made because of why. An error ends
// the daemon: without an underlay its supervisor has to start it again, as it does flannel.
func (d *Daemon) notOpened(ctx context.Context, a *attempt, why error) (*attempt, error) {
	var unstarted *backendError
	if !a.good {
		if good := d.lastGood(); good != nil {
			d.refuse(a.footing.raw, why, true)
			return good, nil
		}
		if !errors.As(why, &unstarted) {
			return nil, why
		}
		d.wait(fmt.Sprintf("config: the backend does not start: %v", why))
		pause(ctx, waitOpen)
		return nil, nil
	}
	if !errors.As(why, &unstarted) {
		return nil, why
	}
	d.wait(fmt.Sprintf("config: the last good one: the backend does not start: %v", why))
	if f, none := d.source.ask(ctx, d.asked); none == "" && !f.network.Equal(a.footing.network) && !d.refused(f.raw) {
		return &attempt{footing: f}, nil
	}
	pause(ctx, waitOpen)
	return d.lastGood(), nil
}

// fromCache returns what the last run saved. If it returns nil, weftd asks the source
// first. No fault of the cache keeps the daemon from starting.
func (d *Daemon) fromCache() (footing, *lease.Cached) {
	c, err := d.cache.Load()
	if err != nil {
		d.log.Info("no last state: the "+d.source.name()+" has to answer first", "reason", err)
		return footing{}, nil
	}
	f, err := d.source.recall(c)
	if err != nil {
		d.log.Warn("the last state cannot be used: the "+d.source.name()+" has to answer first", "reason", err)
		return footing{}, nil
	}
	return f, &c
}

const waitFirst, waitMost = 100 * time.Millisecond, 2 * time.Second

// waitFooting asks the source until it has a footing. The error is ctx's.
func (d *Daemon) waitFooting(ctx context.Context) (footing, error) {
	for wait := waitFirst; ; wait = min(2*wait, waitMost) {
		f, why := d.source.ask(ctx, d.asked)
		if ctx.Err() != nil {
			return f, ctx.Err()
		}
		if why == "" {
			d.identify(f.node)
			return f, nil
		}
		d.wait(why)
		if !pause(ctx, wait) {
			return f, ctx.Err()
		}
	}
}

// readNetConfig reads and checks a network configuration file.
func readNetConfig(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if _, err := routing.ParseConfig(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
