package keeper

import "time"

// Rounds schedules questions whether another owner lives. Each round is answered or passes in silence. The
// zero value begins the first one. It has no clock, and is not safe for concurrent use.
type Rounds struct {
	// Under says that a round is under way, and Next when it ends, or the next one begins.
	Under bool
	Next  time.Time
	// Silent and Answered are how many rounds in a row had no answer, and how many had one.
	Silent, Answered int
}

// The time between two rounds: without an answer, and with one, when it doubles with each.
const (
	roundPause            = time.Second
	againFirst, againMost = 2 * time.Second, 10 * time.Second
)

// Begin begins a round that lasts until end.
func (r *Rounds) Begin(end time.Time) { r.Under, r.Next = true, end }

// End ends the round: with an answer or in silence.
func (r *Rounds) End(now time.Time, answered bool) {
	r.Under = false
	if answered {
		r.Next = now.Add(min(againFirst<<min(r.Answered, 8), againMost))
		r.Answered, r.Silent = r.Answered+1, 0
		return
	}
	r.Next = now.Add(roundPause)
	r.Silent, r.Answered = r.Silent+1, 0
}
