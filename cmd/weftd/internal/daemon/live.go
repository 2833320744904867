package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"weft/lease"
	"weft/routing"
)

// errFootingChanged ends a generation whose footing turned out to be outdated.
var errFootingChanged = errors.New("the node is not what it was")

// live serves one footing after the other until ctx ends.
func (d *Daemon) live(ctx context.Context) error {
	f, cached := d.recalled, d.cached
	d.cached = nil // in a large network it is much, and outdated soon
	for {
		if cached == nil {
			var err error
			if f, err = d.waitFooting(ctx); err != nil {
				return nil // ctx ended
			}
		}
		use := cached
		cached = nil
		err := d.serve(ctx, f, use)
		var changed *lease.ConfigChangedError
		switch {
		case errors.As(err, &changed):
			d.log.Info("the store's network configuration is another than the cached one: starting over with it")
		case errors.Is(err, errFootingChanged):
			d.log.Info("starting over", "because", err)
		case ctx.Err() != nil:
			return nil
		default:
			return err
		}
		d.setGeneration(nil)
	}
}

// fromCache returns what the last run knew, or nil: then the source comes first.
// Nothing that is wrong with the cache keeps the daemon from starting.
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

// waitFooting asks the source until there is something to stand on. The error is ctx's.
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
