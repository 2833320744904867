package probe

import "time"

const (
	// leastMTU4 and leastMTU6 are where a search begins, in bytes: every path carries that much (RFC 791, RFC
	// 8200).
	leastMTU4, leastMTU6 = 576, 1280
	// fineness is how close the result of a search is to the largest packet that passes, in bytes.
	fineness = 8
	// lostTries is how many packets of one size are lost, while small ones pass, before that size counts as too
	// large. lossyTries is the same where small ones are lost too.
	lostTries, lossyTries = 3, 8
	// verifyEvery is the least time between tries of the largest size, which go with a way's turns: every other
	// one has one.
	verifyEvery = 14 * time.Second
)

// search looks for the largest inner packet that passes. The zero value has tried nothing.
type search struct {
	most   int // the largest that is sent
	passed int // the largest that passed, 0 for none
	hole   bool
	due    time.Time // when the largest size is tried next

	again     bool // of a hole: what had passed is tried next, not the largest size
	searching bool
	lo, hi    int // lo passes, or is so small that it must; hi does not

	trying int  // the size in question, 0 for none
	tries  int  // how many of that size were sent
	open   bool // the last one is not answered
}

// limit sets the largest size that is sent.
func (s *search) limit(largest int) {
	switch {
	case s.most == largest:
	case s.passed >= largest:
		*s = search{most: largest, due: s.due, passed: largest}
	default:
		*s = search{most: largest}
	}
}

// size is what is to be tried in this turn, in bytes of the inner packet; 0 for nothing.
func (s *search) size(now time.Time) int {
	if s.trying == 0 {
		switch {
		case s.most == 0:
			return 0
		case s.searching:
			s.trying = (s.lo + s.hi + 1) / 2
		case now.Before(s.due):
			return 0
		case s.again:
			s.trying = s.passed
		default:
			s.trying = s.most
		}
		s.tries = 0
	}
	s.tries++
	s.open = true
	return s.trying
}

// answeredSize takes in that a packet of that size passed. It reports whether the result is news: a hole is
// gone.
func (s *search) answeredSize(size int, now time.Time) (mended bool) {
	if size != s.trying {
		return false // an answer that came late
	}
	s.trying, s.open = 0, false
	switch {
	case size >= s.most:
		mended = s.hole
		*s = search{most: s.most, passed: size, due: now.Add(verifyEvery)}
		return mended
	case s.searching:
		s.lo, s.passed = size, size
	default:
		s.again, s.due = false, now.Add(verifyEvery/2)
	}
	return false
}

// turn is told when a small packet was answered after one of the size in question was sent and was not. least
// is the least MTU of the family, and most how often a size is tried. It reports whether the search has found
// that less than the largest size passes.
func (s *search) turn(least, most int, now time.Time) (found bool) {
	if s.open && s.tries >= most {
		s.open = false
		lost := s.trying
		s.trying = 0
		switch {
		case s.searching:
			s.hi = lost
		case s.hole && lost >= s.most: // as before
			s.again, s.due = true, now.Add(verifyEvery/2)
		default:
			s.searching, s.lo, s.hi = true, min(least, lost-1), lost
			s.passed = 0
		}
	}
	if s.searching && s.trying == 0 && s.hi-s.lo <= fineness {
		s.searching = false
		s.passed, s.due = s.lo, now.Add(verifyEvery)
		if !s.hole {
			s.hole = true
			return true
		}
	}
	return false
}

// forgive takes back a try whose small packet was lost as well.
func (s *search) forgive() {
	if s.open {
		s.open = false
		s.tries--
	}
}

// busy reports whether the next turn should come soon.
func (s *search) busy() bool { return s.searching || s.open }

// padSize is the size of the long question of a turn, in bytes; 0 for none. The usual size goes first if
// somebody claimed, by ICMP, that the way does not carry it.
func (w *way) padSize(now time.Time) int {
	if w.narrow > 0 && w.doubts > 0 && w.MTU > w.narrow {
		w.doubts--
		return w.MTU
	}
	return w.mtu.size(now)
}

// refutes takes in that a packet of that size passed. It reports whether that was more than was claimed.
func (w *way) refutes(size int, now time.Time) bool {
	if w.narrow == 0 || size <= w.narrow {
		return false
	}
	w.narrow, w.refuted = 0, now.Add(narrowFor)
	w.mtu.limit(w.MTU)
	return true
}
