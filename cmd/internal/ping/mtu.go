package ping

import (
	"context"
	"slices"
	"time"

	"weft/cmd/internal/diagnose"
)

const (
	// steps is how many sizes are asked for at once, and copies how often each, since one lost packet proves
	// nothing. Where some of the small ones are lost too, it is lossyCopies.
	steps, copies, lossyCopies = 8, 2, 6
	// patient and hasty bound how long the answer to a size may take: four of the longest round trips that were
	// seen.
	hasty, patient = 250 * time.Millisecond, time.Second
)

// A limit is believed after so many rounds in which its size passed and one more did not. The rounds are
// bounded, since in one that is lost whole neither passes, and so are the searches, since a limit that is
// none is searched again.
const proofs, mostRounds, mostSearches = 3, 6, 3

// width is what a search for the largest packet found.
type width struct {
	// passed is the largest that passed; 0 if none did. done says that it is the largest of all, or as large as
	// the layer's.
	passed int
	done   bool
	// said is what a router, or this host, said of a packet that is too long.
	said *diagnose.Said
}

// search is one for the largest packet that passes a layer.
type search struct {
	a     Asker
	q     Question
	times int
	width
}

// widest looks for the largest packet that passes, up to what is expected of the layer.
func widest(ctx context.Context, a Asker, q Question, f layerResult) width {
	low, high := least(q.To), f.Expected
	q.Interval, q.Timeout = 0, min(patient, max(hasty, 4*f.RTT.Max))
	s := search{a: a, q: q, times: copies}
	if f.Answered < f.Sent {
		s.times = lossyCopies
	}
	for range 2 { // a burst on the way may take the first ones
		if s.ask(ctx, high); s.passed == high {
			s.done = true
			return s.width
		}
	}
	for range 2 {
		if s.passed == 0 && low < high {
			s.ask(ctx, low)
		}
	}
	for range mostSearches {
		if s.passed == 0 || ctx.Err() != nil {
			break
		}
		s.narrow(ctx, high)
		if s.done = s.passed == high || s.prove(ctx); s.done {
			break
		}
	}
	return s.width
}

// ask asks for each size some times, and takes what passes for the largest if it is.
func (s *search) ask(ctx context.Context, sizes ...int) (passed []int) {
	s.q.Sizes = slices.Concat(slices.Repeat([][]int{sizes}, s.times)...)
	o := s.a.Ask(ctx, s.q)
	if s.said == nil {
		s.said = o.TooBig
	}
	for i, d := range o.RTTs {
		if d > 0 {
			passed = append(passed, s.q.Sizes[i])
			s.passed = max(s.passed, s.q.Sizes[i])
		}
	}
	return passed
}

// narrow asks for sizes between what passed and what did not, until they are neighbours.
func (s *search) narrow(ctx context.Context, fails int) {
	for fails-s.passed > 1 && ctx.Err() == nil {
		var sizes []int
		for i := 1; i <= steps; i++ {
			if n := s.passed + (fails-s.passed)*i/(steps+1); n > s.passed && !slices.Contains(sizes, n) {
				sizes = append(sizes, n)
			}
		}
		s.ask(ctx, sizes...)
		for _, n := range sizes {
			if n > s.passed {
				fails = min(fails, n)
			}
		}
	}
}

// prove reports whether what passed passes again and again, while one byte more never does.
func (s *search) prove(ctx context.Context) bool {
	limit, proven := s.passed, 0
	sizes := []int{limit, limit + 1}
	for range mostRounds {
		if ctx.Err() != nil || proven == proofs {
			break
		}
		passed := s.ask(ctx, sizes...)
		slices.Reverse(sizes) // what drops each second packet drops another one
		if s.passed > limit {
			return false
		}
		if len(passed) > 1 { // once more after one byte more was lost
			proven++
		}
	}
	return proven == proofs
}
