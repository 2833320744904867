package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// garbagePercent is how much garbage may pile up, in percent of what is in use. Go's own 100 nearly
	// doubles the memory of a large network, to save time that is not needed: forwarding makes no garbage.
	garbagePercent = 15
	// manyPeers is from how many on a set is worth a collection of its own: each change makes a new set
	// and a new table, and then nothing for long, so that the old ones would stay until the next change.
	manyPeers = 1000
	// settleAfter is how long after a large change memory is given back to the kernel, since the next
	// change may follow at once; settleEvery is the least time between two times.
	settleAfter = 5 * time.Second
	settleEvery = 30 * time.Second
)

// thrifty reports whether the collector is ours to set: not if the operator does (GOGC, GOMEMLIMIT).
func thrifty() bool {
	_, percent := os.LookupEnv("GOGC")
	_, limit := os.LookupEnv("GOMEMLIMIT")
	return !percent && !limit
}

// tidy is called when a set of so many peers has taken the place of another, or of none.
func (d *Daemon) tidy(first bool, before, now int) {
	if first && d.thrifty { // before, packets wait for the start, and collecting would delay it
		debug.SetGCPercent(garbagePercent)
	}
	if first || max(now-before, before-now) >= manyPeers {
		select {
		case d.resized <- struct{}{}:
		default:
		}
	}
	if d.thrifty && max(before, now) >= manyPeers {
		runtime.GC()
	}
}

// settle gives memory back to the kernel after the start and after large changes, until ctx ends. To
// learn many peers at once takes several times the memory that they then take, and Go keeps for long
// what it had.
func (d *Daemon) settle(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.resized:
		}
		if !pause(ctx, settleAfter) {
			return nil
		}
		select {
		case <-d.resized: // what came meanwhile is served too
		default:
		}
		if d.thrifty {
			debug.FreeOSMemory()
		}
		if err := dropImage(); err != nil {
			d.log.Debug("pages of the program were not given back", "reason", err)
		}
		if !pause(ctx, settleEvery) {
			return nil
		}
	}
}
