package load

import (
	"fmt"
	"math"
	"time"
)

// Trial is a flow of datagrams at one rate.
type Trial struct {
	// Sent is how many the sender's kernel took. Received is how many had arrived when the
	// sender stopped, or a few milliseconds later: what still stands in some queue then is
	// no part of a rate that could be kept up.
	Sent, Received int64
	Elapsed        time.Duration
}

// Loss is the share that did not arrive, 0 to 1.
func (t Trial) Loss() float64 {
	if t.Sent == 0 {
		return 1
	}
	return 1 - float64(min(t.Received, t.Sent))/float64(t.Sent)
}

// Offered and Delivered are packets a second.
func (t Trial) Offered() float64   { return float64(t.Sent) / t.Elapsed.Seconds() }
func (t Trial) Delivered() float64 { return float64(t.Received) / t.Elapsed.Seconds() }

func (t Trial) String() string {
	return fmt.Sprintf("%.0f/s offered, %.0f/s delivered, %.2f %% lost", t.Offered(), t.Delivered(), 100*t.Loss())
}

const (
	precision = 1.04 // between the highest rate that passed and the lowest that did not
	maxTrials = 16
	// A trial that lost less than this may have met a hiccup of the machine, and has a second chance.
	doubtful = 0.05
)

// search is one under way.
type search struct {
	limit  float64
	try    func(rate float64) (Trial, error)
	best   Trial
	trials int
}

// Search finds the highest rate at which less than the share limit is lost, or nothing if
// limit is 0. try makes a trial at a rate in packets a second, where 0 is as fast as the
// sender can. The result is the best trial that passed, and how many there were; it is an
// error if none did.
func Search(limit float64, try func(rate float64) (Trial, error)) (best Trial, trials int, err error) {
	s := &search{limit: limit, try: try}
	pass, full, err := s.passes(0)
	if err == nil && pass {
		// The sender is the limit, and one short trial of it a poor sample: the better of two.
		_, _, err = s.passes(0)
		return s.best, s.trials, err
	}
	if err != nil {
		return s.best, s.trials, err
	}
	if err := s.between(full.Delivered()*0.9, full.Offered()); err != nil {
		return s.best, s.trials, err
	}
	if s.best.Sent == 0 {
		return s.best, s.trials, fmt.Errorf("no rate lost less than %.1f %%; as fast as possible: %s", 100*limit, full)
	}
	return s.best, s.trials, nil
}

// SearchBelow is Search for a stricter limit, at rates up to that of a trial that passed
// the laxer one. If no rate passes, best is the zero Trial: a path that always loses
// something is a result, not an error.
func SearchBelow(limit float64, from Trial, try func(rate float64) (Trial, error)) (best Trial, trials int, err error) {
	s := &search{limit: limit, try: try}
	if s.within(from) {
		return from, 0, nil
	}
	err = s.between(from.Offered()*0.9, from.Offered())
	return s.best, s.trials, err
}

func (s *search) within(t Trial) bool {
	return t.Sent > 0 && (t.Loss() < s.limit || t.Received >= t.Sent)
}

// passes makes a trial, and one more if it is doubtful.
func (s *search) passes(rate float64) (bool, Trial, error) {
	for chance := 0; ; chance++ {
		t, err := s.try(rate)
		s.trials++
		if err != nil {
			return false, t, err
		}
		pass := s.within(t)
		if pass && t.Delivered() > s.best.rate() {
			s.best = t
		}
		if pass || chance > 0 || t.Loss() > doubtful {
			return pass, t, nil
		}
	}
}

// between halves the logarithm of what lies between a rate that passed and high, which did not.
func (s *search) between(rate, high float64) error {
	low := 0.0
	for s.trials < maxTrials && (low == 0 || high/low > precision) && rate >= 1 {
		pass, t, err := s.passes(rate)
		switch {
		case err != nil:
			return err
		case pass && t.Offered() < rate/precision: // the sender does not get further
			return nil
		case pass:
			low = rate
		default:
			high = rate
		}
		if low == 0 {
			rate = high / 2
		} else {
			rate = math.Sqrt(low * high)
		}
	}
	return nil
}

// rate is Delivered, and 0 of the zero Trial.
func (t Trial) rate() float64 {
	if t.Elapsed == 0 {
		return 0
	}
	return t.Delivered()
}
