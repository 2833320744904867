package test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"weft/test/netns"
)

// Scenarios run side by side: their namespaces have no names, and most of them wait. A scenario is one of
// five kinds.
//
//   - One that calls nothing of this file has the machine to itself.
//   - One that leaves a lab as it found it calls shared, and gets a lab that others had before it
//     (shared_linux_test.go).
//   - One whose lab has tens of nodes calls large: one of these runs at a time. They start first, since one
//     after the other they take longest.
//   - One that takes a minute or more calls long, and starts before the others too.
//   - All others call parallel. A test whose subtests each have a lab calls t.Parallel itself, and its
//     subtests parallel.

// places says how many labs there are. The test framework's own limit would give a test that waits for a
// shared lab a place that others could use; TestMain lifts it.
type places struct {
	mu      sync.Mutex
	changed *sync.Cond
	taken   int
	inUse   map[string]bool // the shared labs that a test has now, by network config
	large   bool            // a test with a large lab has a place
	coming  int             // how many large and long ones have none yet
}

var turn = newPlaces()

func newPlaces() *places {
	p := &places{inUse: map[string]bool{}}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// atOnce is how many labs there are side by side. However many processors there are, all labs share the
// kernel's table of neighbours.
func atOnce() int { return min(4*runtime.GOMAXPROCS(0), 16) }

// ahead is the nice value of the daemons: for each turn of another process they have some twenty. So a packet
// that is lost, or a peer that falls silent, is weft's fault, and not that of a machine that had no time.
const ahead = -15

// parallel makes a test one that runs beside others.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	turn.take(t, func() bool { return turn.large || turn.coming == 0 })
}

// long is parallel for a test that takes a minute or more.
func long(t *testing.T) {
	t.Helper()
	netns.Long(t)
	turn.change(func() { turn.coming++ }) // before the first parallel test goes on
	t.Parallel()
	turn.take(t, func() bool {
		turn.coming--
		return true
	})
}

// large is parallel for a test whose lab has tens of nodes. Each of n nodes has a neighbour entry for each
// other, and the kernel has room for 1,024 entries (gc_thresh3, arp(7)) of all network namespaces together:
// two such labs would lose packets for want of an entry, in every lab. While there is such a lab, a quarter
// of all places are its own besides.
func large(t *testing.T) {
	t.Helper()
	netns.Long(t)
	turn.change(func() { turn.coming++ }) // before the first parallel test goes on
	t.Parallel()
	more := atOnce() / 4 // places, besides the one that every test has
	turn.take(t, func() bool {
		if turn.large {
			return false
		}
		turn.large, turn.coming, turn.taken = true, turn.coming-1, turn.taken+more
		return true
	})
	t.Cleanup(func() { turn.change(func() { turn.large, turn.taken = false, turn.taken-more }) })
}

// lend is parallel for a test that uses the shared lab of that config, which one test at a time has.
func lend(t *testing.T, config string) {
	t.Helper()
	t.Parallel()
	turn.take(t, func() bool {
		if turn.inUse[config] || !turn.large && turn.coming > 0 {
			return false
		}
		turn.inUse[config] = true
		return true
	})
	t.Cleanup(func() { turn.change(func() { delete(turn.inUse, config) }) })
}

func (p *places) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// take waits for a place, and gives it back when the test ends. It asks mine only when a place is free, and
// takes the place when mine says yes. The test's attribute says how long it waited.
func (p *places) take(test *testing.T, mine func() bool) {
	start := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.taken >= atOnce() || !mine() {
		p.changed.Wait()
	}
	p.taken++
	test.Cleanup(func() { p.change(func() { p.taken-- }) })
	test.Attr("waited", time.Since(start).String())
}
