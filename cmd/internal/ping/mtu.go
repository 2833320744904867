package ping

import (
	"context"
	"slices"
	"time"
)

const (
	// steps is how many sizes are asked for at once, and copies how often each, since one lost packet proves nothing. Where some
	// of the small ones are lost too, it is lossyCopies.
	steps, copies, lossyCopies = 8, 2, 6
	// patient and hasty bound how long the answer to a size may take: four of the longest round trips that were seen.
	hasty, patient = 250 * time.Millisecond, time.Second
)

// widest looks for the largest packet that passes, up to what is expected of the layer, and reports whether larger ones are lost without a word: said is what a
// router, or this host, says of them.
func widest(ctx context.Context, a Asker, q Question, f found) (mtu int, hole bool, said *Said) {
	low, high := least(q.To), f.Expected
	q.Interval, q.Timeout = 0, min(patient, max(hasty, 4*f.RTT.Max))
	times := copies
	if f.Answered < f.Sent {
		times = lossyCopies
	}
	pass := func(sizes ...int) (largest int) {
		q.Sizes = nil
		for range times {
			q.Sizes = append(q.Sizes, sizes...)
		}
		o := a.Ask(ctx, q)
		if said == nil {
			said = o.TooBig
		}
		for i, d := range o.RTTs {
			if d > 0 {
				largest = max(largest, q.Sizes[i])
			}
		}
		return largest
	}
	if high <= low {
		return pass(high), false, said
	}
	for range 2 { // a burst on the way may take the first ones
		if pass(high) == high {
			return high, false, nil
		}
	}
	mtu = pass(low)
	if mtu < low {
		return mtu, said == nil, said
	}
	for fails := high; fails-mtu > 1; {
		var sizes []int
		for i := 1; i <= steps; i++ {
			if n := mtu + (fails-mtu)*i/(steps+1); n > mtu && !slices.Contains(sizes, n) {
				sizes = append(sizes, n)
			}
		}
		if said != nil && said.MTU > mtu && said.MTU < fails {
			sizes = append(sizes, said.MTU)
			if said.MTU+1 < fails {
				sizes = append(sizes, said.MTU+1)
			}
			slices.Sort(sizes)
			sizes = slices.Compact(sizes)
		}
		if len(sizes) == 0 {
			sizes = []int{mtu + 1}
		}
		passed := max(mtu, pass(sizes...))
		for _, n := range sizes {
			if n > passed {
				fails = min(fails, n)
			}
		}
		mtu = passed
		if ctx.Err() != nil {
			break
		}
	}
	return mtu, said == nil, said
}
