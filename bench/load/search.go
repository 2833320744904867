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

// Search finds the highest rate at which less than the share limit is lost. try makes a
// trial at a rate in packets a second, where 0 is as fast as the sender can. The result is
// the best trial that passed, and how many there were; it is an error if none did.
func Search(limit float64, try func(rate float64) (Trial, error)) (best Trial, trials int, err error) {
	passes := func(rate float64) (bool, Trial, error) {
		for chance := 0; ; chance++ {
			t, err := try(rate)
			trials++
			if err != nil {
				return false, t, err
			}
			pass := t.Sent > 0 && t.Loss() < limit
			if pass && t.Delivered() > best.rate() {
				best = t
			}
			if pass || chance > 0 || t.Loss() > doubtful {
				return pass, t, nil
			}
		}
	}
	pass, full, err := passes(0)
	if err != nil || pass {
		return best, trials, err // the sender is the limit
	}
	low, high := 0.0, full.Offered()
	for rate := full.Delivered() * 0.9; trials < maxTrials && (low == 0 || high/low > precision); {
		if rate < 1 {
			break
		}
		pass, t, err := passes(rate)
		switch {
		case err != nil:
			return best, trials, err
		case pass && t.Offered() < rate/precision: // the sender does not get further
			return best, trials, nil
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
	if best.Sent == 0 {
		return best, trials, fmt.Errorf("no rate lost less than %.1f %%; as fast as possible: %s", 100*limit, full)
	}
	return best, trials, nil
}

// rate is Delivered, and 0 of the zero Trial.
func (t Trial) rate() float64 {
	if t.Elapsed == 0 {
		return 0
	}
	return t.Delivered()
}
