package daemon

import (
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
	// encryptingPercent is likewise, where weftd encrypts: each collection empties the library's pools of
	// buffers, which are then made again for what waits to be encrypted.
	encryptingPercent = 100
	// manyPeers is the number of peers from which on each new set is followed by a garbage collection. A change
	// makes a new set and a new table, and may be the last for long, so that the old ones would stay till then.
	manyPeers = 1000
	// trimAfter is how long after a large change memory is returned to the kernel once more, since the next
	// change may come at once. Learning many peers at once takes several times the memory that they need
	// afterwards, and Go keeps freed memory for long.
	trimAfter = 5 * time.Second
)

// memory fits Go's runtime to what weftd does. It is for one goroutine.
type memory struct {
	tuneGC  bool        // since the operator does not (GOGC, GOMEMLIMIT)
	workers int         // of the data plane
	trim    *time.Timer // nil before the first set
}

func newMemory(workers int) *memory {
	_, percent := os.LookupEnv("GOGC")
	_, limit := os.LookupEnv("GOMEMLIMIT")
	return &memory{tuneGC: !percent && !limit, workers: workers}
}

// tidy is called when a set has taken the place of another, or of none (first). before and now are their
// numbers of peers, and path that of the backend.
func (m *memory) tidy(path string, first bool, before, now int) {
	if first { // not earlier, since packets wait for the start, which a collection would delay
		m.tune(path)
	}
	if !m.tuneGC {
		return
	}
	switch {
	case m.trim == nil:
		m.trim = time.AfterFunc(trimAfter, debug.FreeOSMemory)
	case first || max(now-before, before-now) >= manyPeers:
		m.trim.Reset(trimAfter)
	}
	if max(before, now) >= manyPeers {
		debug.FreeOSMemory() // what the next change finds free it fills again, beside what is in use
	}
}

// tune fits Go's runtime to a backend with that path. The data plane's workers each have a processor of Go's
// more (reserveProcessors), while they wait for packets. The library that encrypts passes packets between
// goroutines, and more processors than the machine has make that slower.
func (m *memory) tune(path string) {
	encrypts := path == routing.PathUserspace
	runtime.SetDefaultGOMAXPROCS()
	if !encrypts {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + m.workers)
	}
	switch {
	case !m.tuneGC:
	case encrypts:
		debug.SetGCPercent(encryptingPercent)
	default:
		debug.SetGCPercent(garbagePercent)
	}
}
