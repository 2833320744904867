package ping

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft/cmd/internal/diagnose"
)

// Asker asks one series of questions, and waits for the answers: until all are there, or nothing can come any
// more. It is called concurrently.
type Asker interface {
	Ask(ctx context.Context, q Question) Outcome
	// Neighbour looks at the next hop to an address of the underlay.
	Neighbour(ctx context.Context, a netip.Addr) diagnose.Neighbour
}

// Options say how much is asked.
type Options struct {
	// Count is how many questions a layer gets, Interval the time from one to the next, Timeout how long an
	// answer may take, and Size the length of each as an IP packet, 0 for the shortest.
	Count             int
	Interval, Timeout time.Duration
	Size              int
}

// layerResult is all that was learnt of a layer.
type layerResult struct {
	Row
	out Outcome
	// largeSent and largeLost count packets of Row.MTU bytes that were asked for once the small ones had passed.
	largeSent, largeLost int
	// hole says that packets up to Row.Expected are sent, and those above Row.MTU are lost without a word.
	hole bool
	// wide is what was said of packets that are too long.
	wide *diagnose.Said
}

// Run asks all layers of w at once, so that a way that is wholly broken takes no longer than one layer does,
// and judges what came of it. arrived, if not nil, returns how many packets the data plane got from the peer.
func Run(ctx context.Context, a Asker, w Route, o Options, arrived func() (uint64, bool)) Result {
	var before uint64
	counted := false
	if arrived != nil {
		before, counted = arrived()
	}
	layers := w.layers()
	got := make([]layerResult, len(layers))
	var wg sync.WaitGroup
	for i, l := range layers {
		wg.Go(func() { got[i] = ask(ctx, a, w, l, o) })
	}
	wg.Wait()
	s := evidence{w: w, rows: got}
	if counted {
		after, still := arrived()
		s.receivedFromPeer = still && after > before
	}
	if slices.ContainsFunc(got, func(l layerResult) bool { return l.Answered < l.Sent }) {
		s.w.Neighbour = a.Neighbour(ctx, w.Under)
	}
	return s.judge()
}

// Of large packets largeCount are asked for, largeEvery apart, so that a loss of one in twenty shows.
const largeCount, largeEvery = 60, 5 * time.Millisecond

// Lost questions are asked again, lookAgain at once, so that one that is lost and a third of all are told
// apart.
const lookAgain, againEvery = 20, 50 * time.Millisecond

func ask(ctx context.Context, a Asker, w Route, l diagnose.Layer, o Options) layerResult {
	q := w.question(l)
	f := layerResult{Row: Row{Layer: l, To: q.To, Port: q.Port, By: q.By, Expected: w.expected(l)}}
	if why := w.Not[l]; why != "" {
		f.out.Cannot = why
		return f
	}
	q.Sizes, q.Interval, q.Timeout = slices.Repeat([]int{o.Size}, o.Count), o.Interval, o.Timeout
	if l == diagnose.Port && !q.Probe {
		// it would be counted as malformed by whoever reads it, and nobody answers
		q.Sizes = []int{0, 0}
	}
	f.out = a.Ask(ctx, q)
	if n := f.out.answered(); n > 0 && n < len(f.out.RTTs) {
		q.Sizes, q.Interval, q.Timeout = slices.Repeat([]int{o.Size}, lookAgain), min(o.Interval, againEvery),
			min(o.Timeout, time.Second)
		more := a.Ask(ctx, q)
		f.out.RTTs = append(f.out.RTTs, more.RTTs...)
	}
	f.Sent, f.Answered = len(f.out.RTTs), f.out.answered()
	f.RTT = roundTrips(f.out.RTTs)
	if f.Sent > 0 && f.out.NoAnswers == "" && (l != diagnose.Port || q.Probe) {
		loss := float64(f.Sent-f.Answered) / float64(f.Sent)
		f.Loss = &loss
	}
	if f.Expected > 0 && f.Answered > 0 {
		w := widest(ctx, a, q, f)
		f.MTU, f.MTUUnfinished, f.wide = w.passed, !w.done, w.said
		f.hole = w.done && w.passed < f.Expected && w.said == nil
		if f.Answered == f.Sent && f.MTU > least(q.To) {
			q.Sizes, q.Interval, q.Timeout = slices.Repeat([]int{f.MTU}, largeCount), largeEvery, min(o.Timeout,
				time.Second)
			large := a.Ask(ctx, q)
			f.largeSent, f.largeLost = len(large.RTTs), len(large.RTTs)-large.answered()
		}
	}
	return f
}

func roundTrips(all []time.Duration) *RTT {
	l := slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return d == 0 })
	if len(l) == 0 {
		return nil
	}
	slices.Sort(l)
	return &RTT{Min: l[0], Median: l[len(l)/2], Max: l[len(l)-1]}
}

// least is the shortest packet that every path of the family carries whole, in bytes (RFC 791, RFC 8200).
func least(to netip.Addr) int {
	if to.Is6() {
		return 1280
	}
	return 576
}
