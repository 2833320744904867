package test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Scenarios run side by side: their namespaces have no names, and most of them wait. Three kinds are told apart.
//
//   - A scenario that measures the machine itself, such as memory under full load or the packets that a restart costs,
//     runs alone. It calls nothing of this file but first, if what it measures is lost packets.
//   - A scenario in which no packet may be lost at some rate calls counting. These start first, since they take the
//     longest. Their daemons have priority over everything else on the machine, so that a lost packet is weft's fault,
//     and not that of a machine that had no time.
//   - Of the others, one that leaves a lab as it found it calls shared, and gets a lab that others had before it
//     (shared_linux_test.go).
//   - One whose lab has tens of nodes calls crowd: of these, one at a time runs.
//   - All the rest call busy.
//
// A test whose subtests each have a lab calls t.Parallel itself, and its subtests busy.

// turns says whose turn it is. The test framework's own limit would give a test that has to wait for its turn a place
// that others could use; TestMain lifts it.
type turns struct {
	mu      sync.Mutex
	changed *sync.Cond
	counts  map[string]bool // the top-level tests whose daemons go before everything else, by name
	coming  int             // of these, how many have no place yet
	running int             // of all kinds
	inUse   map[string]bool // the shared labs that a test has now, by network config
	crowded bool            // a test with a large lab has a place
}

var turn = newTurns()

func newTurns() *turns {
	t := turns{counts: map[string]bool{}, inUse: map[string]bool{}}
	t.changed = sync.NewCond(&t.mu)
	return &t
}

// atOnce is how many labs there are side by side: most of a scenario is waiting. However many processors there are, all labs share
// the kernel's table of neighbours.
func atOnce() int { return min(3*runtime.GOMAXPROCS(0), 16) }

// ahead is the nice value of a daemon whose packets are counted: for each turn of another process it has some twenty.
const ahead = -15

// counting makes a test one that counts packets. It has to be a top-level test's first statement: all of them are known
// before the first one begins.
func counting(t *testing.T) {
	t.Helper()
	turn.change(func() { turn.counts[t.Name()], turn.coming = true, turn.coming+1 })
	t.Parallel()
	turn.take(t, func() bool { return true })
	turn.change(func() { turn.coming-- })
}

// first gives the daemons of a test that runs alone the priority of one that counts: other programs than these tests may
// use the machine. One that fails for any warning calls it too, so that a warning is weft's fault. It has to be called in the
// top-level test.
func first(t *testing.T) {
	t.Helper()
	turn.change(func() { turn.counts[t.Name()] = true })
}

// busy makes a test one that may load the machine, beside others of its kind.
func busy(t *testing.T) {
	t.Helper()
	t.Parallel()
	turn.take(t, func() bool { return turn.coming == 0 })
}

// crowd is busy for a test whose lab has tens of nodes. Each of n nodes has a neighbour entry for each other, and the kernel has
// room for 1,024 entries (gc_thresh3, arp(7)) of all network namespaces together: what two such labs send for want of an
// entry is lost, in every lab. While there is such a lab, half of all places are its own.
func crowd(t *testing.T) {
	t.Helper()
	t.Parallel()
	more := atOnce()/2 - 1 // places, besides the one that every test has
	turn.take(t, func() bool {
		if turn.coming > 0 || turn.crowded {
			return false
		}
		turn.crowded, turn.running = true, turn.running+more
		return true
	})
	t.Cleanup(func() { turn.change(func() { turn.crowded, turn.running = false, turn.running-more }) })
}

// lend is busy for a test that uses the shared lab of that config, which one at a time may.
func lend(t *testing.T, config string) {
	t.Helper()
	t.Parallel()
	turn.take(t, func() bool {
		if turn.coming > 0 || turn.inUse[config] {
			return false
		}
		turn.inUse[config] = true
		return true
	})
	t.Cleanup(func() { turn.change(func() { delete(turn.inUse, config) }) })
}

// niceOf returns the nice value of the daemons of a test's labs.
func niceOf(t *testing.T) int {
	top, _, _ := strings.Cut(t.Name(), "/")
	turn.mu.Lock()
	defer turn.mu.Unlock()
	if turn.counts[top] {
		return ahead
	}
	return 0
}

func (t *turns) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	t.changed.Broadcast()
}

// take waits for a place, and gives it back when the test ends. mine is asked only when a place is free, and the place is
// taken when it says yes. How long that was is an attribute of the test, so that
// test/cmd/report can tell it from the test's own time.
func (t *turns) take(test *testing.T, mine func() bool) {
	start := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.running >= atOnce() || !mine() {
		t.changed.Wait()
	}
	t.running++
	test.Cleanup(func() { t.change(func() { t.running-- }) })
	test.Attr("waited", time.Since(start).String())
}
