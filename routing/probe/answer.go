package probe

// Answers are given to a peer at answersPerSecond at the most, answersBurst at once, and to all of them
// together at allAnswersPerSecond.
const (
	answersPerSecond, answersBurst       = 20, 40
	allAnswersPerSecond, allAnswersBurst = 1000, 1000
	// A question proves that it is the peer's by the session that this node told the peer, and nobody else. One
	// that does not is the first of a peer that has just started, or somebody's who sends from the peer's
	// address: these have a room of their own, so that they take nobody's.
	unprovedPerSecond, unprovedBurst       = 2, 8
	allUnprovedPerSecond, allUnprovedBurst = 500, 1000
)

// proved reports whether the sender of d is the peer, and not somebody who only has its address: it has seen
// what this node sent there, or is who answered this node's question before.
func (w *way) proved(d Datagram) bool {
	return d.Theirs == w.session || w.in.session != 0 && d.Session == w.in.session
}

// mayAnswer reports whether there is room for an answer to the question d.
func (c *Core) mayAnswer(w *way, d Datagram, now moment) bool {
	if !w.proved(d) {
		return allow(&w.unproved, &w.provedFrom, unprovedPerSecond, unprovedBurst, now) &&
			allow(&c.unproved, &c.provedFrom, allUnprovedPerSecond, allUnprovedBurst, now)
	}
	return allow(&w.answerable, &w.answerFrom, answersPerSecond, answersBurst, now) &&
		allow(&c.answerable, &c.answerFrom, allAnswersPerSecond, allAnswersBurst, now)
}

// allow reports whether there is room for one more, of burst at once and so many a second.
func allow(room *int32, from *moment, perSecond, burst int32, now moment) bool {
	// The first time it is an hour at least, and may be so long that 32 bits cannot hold the answers.
	if n := int32(min(now.Sub(*from).Seconds()*float64(perSecond), float64(burst))); n > 0 {
		*room, *from = min(burst, *room+n), now
	}
	if *room == 0 {
		return false
	}
	*room--
	return true
}
