package probe

import (
	"time"

	"golang.org/x/time/rate"
)

// limits bound what a peer gets, or all peers together.
type limits struct {
	answers *rate.Limiter
	// A question proves that it is the peer's by the session that this node told the peer, and nobody else. One
	// that does not is the first of a peer that has just started, or somebody's who sends from the peer's
	// address: these have a room of their own, so that they take nobody's.
	unproved *rate.Limiter
	accounts *rate.Limiter
}

// The bursts of one peer and of all together.
const (
	answersBurst, unprovedBurst, accountsBurst          = 40, 8, 60
	allAnswersBurst, allUnprovedBurst, allAccountsBurst = 1000, 1000, 400
)

func limitsOfOne() limits {
	return limits{rate.NewLimiter(20, answersBurst), rate.NewLimiter(2, unprovedBurst),
		rate.NewLimiter(20, accountsBurst)}
}

func limitsOfAll() limits {
	return limits{rate.NewLimiter(1000, allAnswersBurst), rate.NewLimiter(500, allUnprovedBurst),
		rate.NewLimiter(200, allAccountsBurst)}
}

// proved reports whether the sender of d is the peer, and not somebody who only has its address: it has seen
// what this node sent there, or is who answered this node's question before.
func (w *way) proved(d Datagram) bool {
	return d.Theirs == w.session || w.in.session != 0 && d.Session == w.in.session
}

// mayAnswer reports whether there is room for an answer to the question d.
func (c *Core) mayAnswer(w *way, d Datagram, now time.Time) bool {
	if !w.proved(d) {
		return w.limits.unproved.AllowN(now, 1) && c.limits.unproved.AllowN(now, 1)
	}
	return w.limits.answers.AllowN(now, 1) && c.limits.answers.AllowN(now, 1)
}
