package load

import (
	"errors"
	"math"
	"testing"
	"time"
)

// path carries up to capacity packets a second from a sender that makes up to most.
type path struct{ capacity, most float64 }

func (p path) try(rate float64) (Trial, error) {
	if rate == 0 || rate > p.most {
		rate = p.most
	}
	return Trial{Sent: int64(rate), Received: int64(min(rate, p.capacity)), Elapsed: time.Second}, nil
}

func TestSearch(t *testing.T) {
	for name, c := range map[string]struct {
		path
		want float64
	}{
		"the path is the limit":     {path{100_000, 250_000}, 100_000},
		"by far":                    {path{1000, 3_000_000}, 1000},
		"the sender is the limit":   {path{500_000, 250_000}, 250_000},
		"both at about the same":    {path{100_000, 100_100}, 100_100},
		"it collapses if overtaken": {path{90_000, 100_000}, 90_000},
	} {
		got, trials, err := Search(0.005, c.try)
		if err != nil || math.Abs(got.Delivered()/c.want-1) > 0.05 || got.Loss() >= 0.005 {
			t.Errorf("%s: %v after %d trials (%v), want %.0f/s", name, got, trials, err, c.want)
		}
	}
}

// TestSearchSecondChance: a hiccup that loses a little does not end a rate that can be kept.
func TestSearchSecondChance(t *testing.T) {
	n := 0
	got, _, err := Search(0.005, func(rate float64) (Trial, error) {
		r, err := path{100_000, 250_000}.try(rate)
		if n++; n%2 == 0 {
			r.Received = r.Received * 99 / 100
		}
		return r, err
	})
	if err != nil || got.Delivered() < 94_000 {
		t.Errorf("%v, %v, want about 100000/s", got, err)
	}
}

func TestSearchFails(t *testing.T) {
	if got, n, err := Search(0.005, path{0, 1000}.try); err == nil {
		t.Errorf("a path that carries nothing: %v after %d trials", got, n)
	}
	broken := errors.New("broken")
	if _, _, err := Search(0.005, func(float64) (Trial, error) { return Trial{}, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	always := func(rate float64) (Trial, error) { return Trial{Sent: 100, Received: 98, Elapsed: time.Second}, nil }
	if _, n, err := Search(0.005, always); err == nil || n > 2*maxTrials {
		t.Errorf("2 %% lost at every rate: %v after %d trials", err, n)
	}
}
