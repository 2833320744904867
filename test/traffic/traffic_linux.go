// Package traffic counts what becomes of packets between two ends while something happens to what carries
// them. It is the only packet counter of the tests.
package traffic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab/probe"
	"weft/test/netns"
)

// Result says what became of a flow's packets.
type Result struct {
	Sent, Lost, Duplicated, Reordered int
	// LongestGap is the longest time between two arrivals.
	LongestGap time.Duration

	detail string
}

func (r Result) String() string { return r.detail }

// Flow is a stream of numbered packets that is under way.
type Flow struct {
	t     testing.TB
	name  string
	stop  context.CancelFunc
	paced *probe.Paced
}

// longest is how long a flow lasts if nobody stops it.
const longest = 30 * time.Minute

// Start sends pps packets a second until Stop, or the end of the test. It returns once some have arrived.
func Start(t testing.TB, from, to probe.Endpoint, pps int) *Flow {
	return StartSized(t, from, to, pps, 0)
}

// StartSized is Start with packets of size bytes of UDP payload; 0 means 64.
func StartSized(t testing.TB, from, to probe.Endpoint, pps, size int) *Flow {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	plan := probe.PacedPlan{
		From: from, To: to, Rate: pps, Size: size, Count: pps * int(longest/time.Second),
		Wait: time.Second, // only if a packet is missing
	}
	s, err := probe.StartPaced(ctx, plan)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	f := &Flow{t, fmt.Sprintf("%s to %s", from.Name, to.Name), stop, s}
	t.Cleanup(stop)
	f.Passes(10)
	return f
}

// Passes waits until n more packets have arrived.
func (f *Flow) Passes(n int) {
	f.t.Helper()
	_, before := f.paced.Progress()
	await.Within(f.t, await.Timers, f.name, func() error {
		if _, got := f.paced.Progress(); got < before+n {
			return fmt.Errorf("%d packets arrived, want %d", got-before, n)
		}
		return nil
	})
}

// Stop ends the flow and waits for its last packets.
func (f *Flow) Stop() Result {
	f.t.Helper()
	f.stop()
	r := f.paced.Wait()
	out := Result{r.Sent, r.Lost, r.Duplicates, r.Reordered, r.LongestSilence, f.name + ": " + r.String()}
	if r.Lost > 0 {
		out.detail += fmt.Sprintf(", outages %v", r.Outages)
	}
	f.t.Log(out)
	return out
}

// Lossless is Stop for a flow of which no packet may be lost, come twice or out of order.
func (f *Flow) Lossless() {
	f.t.Helper()
	r := f.Stop()
	if r.Lost > 0 && r.Duplicated == 0 && r.Reordered == 0 {
		netns.Root(f.t, "only root may run daemons ahead of other programs, and a busy machine lost packets: "+
			r.String())
	}
	if r.Lost > 0 || r.Duplicated > 0 || r.Reordered > 0 {
		f.t.Errorf("%s; want none lost, duplicated or reordered", r)
	}
}
