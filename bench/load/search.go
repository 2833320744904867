package load

import (
	"fmt"
	"math"
	"time"
)

// Trial is a flow of datagrams at one rate.
type Trial struct {
	// Sent is how many datagrams the sender's kernel took. Received is how many had arrived a few milliseconds
	// after the sender stopped: what still waits in a queue then was sent at a rate that the path could not
	// have kept up.
	Sent, Received int64
	Elapsed        time.Duration
}

// Loss is the share of the datagrams that did not arrive, 0 to 1.
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
	return fmt.Sprintf("%.0f/s offered, %.0f/s delivered, %.2f %% lost", t.Offered(), t.Delivered(),
		100*t.Loss())
}

const (
	precision = 1.04 // between the highest rate that passed and the lowest that did not
	maxTrials = 16
	// A trial that failed but lost less than this share may have met a hiccup of the machine, so it is made once
	// more.
	doubtful = 0.05
)

// search is a search that is under way.
type search struct {
	limit  float64
	try    func(rate float64) (Trial, error)
	best   Trial
	trials int
}

// Search finds the highest rate at which the share of lost packets is below limit, or at which none is lost
// if limit is 0. try makes a trial at a rate in packets a second, where 0 means as fast as the
// sender can. Search returns the best trial that passed, and how many trials it made; it is an
// error if none passed.
func Search(limit float64, try func(rate float64) (Trial, error)) (best Trial, trials int, err error) {
	s := &search{limit: limit, try: try}
	pass, full, err := s.passes(0)
	if err == nil && pass {
		// The path is faster than the sender. One short trial says little about the sender, so the better of two
		// counts.
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
		return s.best, s.trials, fmt.Errorf("no rate lost less than %.1f %%; as fast as possible: %s",
			100*limit, full)
	}
	return s.best, s.trials, nil
}

// SearchBelow is Search for a stricter limit, at rates up to that of a trial that passed
// the laxer one. If no rate passes, best is the zero Trial: a path that always loses
// something is a result, not an error.
func SearchBelow(limit float64, from Trial, try func(rate float64) (Trial, error)) (best Trial, trials int,
	err error) {
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

// passes makes a trial, and another if the first is doubtful.
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

// between narrows down the highest rate that passes, which is below high. It tries rate first, then half of
// what failed until something passes, then the geometric mean of the highest rate that passed and the lowest
// that did not.
func (s *search) between(rate, high float64) error {
	low := 0.0
	for s.trials < maxTrials && (low == 0 || high/low > precision) && rate >= 1 {
		pass, t, err := s.passes(rate)
		switch {
		case err != nil:
			return err
		case pass && t.Offered() < rate/precision: // the sender cannot go faster than this
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

// rate is Delivered, and 0 for the zero Trial.
func (t Trial) rate() float64 {
	if t.Elapsed == 0 {
		return 0
	}
	return t.Delivered()
}
