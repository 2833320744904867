package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"weft/routing"
)

const (
	// garbagePercent is how much garbage may pile up, in percent of what is in use. Go's own 100 nearly
	// doubles the memory of a large network, to save time that is not needed: forwarding makes no garbage.
	garbagePercent = 10
	// encryptingPercent is likewise, where weftd encrypts: each collection empties the library's pools of buffers, which
	// are then made again for what waits to be encrypted.
	encryptingPercent = 100
	// manyPeers is the number of peers from which on each new set is followed by a garbage collection. A change
	// makes a new set and a new table, and may be the last for long, so that the old ones would stay till then.
	manyPeers = 1000
	// settleAfter is how long after a large change memory is returned to the kernel, since the next change
	// may come at once; settleEvery is the shortest time between two such returns.
	settleAfter = 5 * time.Second
	settleEvery = 30 * time.Second
)

// thrifty reports whether weftd tunes the garbage collector. It does not if the operator does (GOGC, GOMEMLIMIT).
func thrifty() bool {
	_, percent := os.LookupEnv("GOGC")
	_, limit := os.LookupEnv("GOMEMLIMIT")
	return !percent && !limit
}

// tidy is called when a set has taken the place of another, or of none (first). before and now are their numbers of
// peers, and path that of the backend.
func (d *Daemon) tidy(path string, first bool, before, now int) {
	if first { // not earlier, since packets wait for the start, which a collection would delay
		d.tune(path)
	}
	if first || max(now-before, before-now) >= manyPeers {
		select {
		case d.resized <- struct{}{}:
		default:
		}
	}
	if d.thrifty && max(before, now) >= manyPeers {
		debug.FreeOSMemory() // what the next change finds free it fills again, beside what is in use
	}
}

// tune fits Go's runtime to a backend with that path. The data plane's workers each have a processor of Go's more
// (reserveProcessors), while they wait for packets. The library that encrypts passes packets between goroutines, and
// more processors than the machine has make that slower.
func (d *Daemon) tune(path string) {
	encrypts := path == routing.PathUserspace
	runtime.SetDefaultGOMAXPROCS()
	if !encrypts {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + d.cfg.Workers)
	}
	switch {
	case !d.thrifty:
	case encrypts:
		debug.SetGCPercent(encryptingPercent)
	default:
		debug.SetGCPercent(garbagePercent)
	}
}

// settle returns memory to the kernel after the start and after large changes, until ctx ends. Learning
// many peers at once takes several times the memory that they need afterwards, and Go keeps freed memory
// for long.
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
		case <-d.resized: // this return serves a change that came meanwhile too
		default:
		}
		if d.thrifty {
			debug.FreeOSMemory()
		}
		if !pause(ctx, settleEvery) {
			return nil
		}
	}
}
