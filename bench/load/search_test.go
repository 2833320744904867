package load

import (
	"errors"
	"math"
	"testing"
	"time"
)

// path carries up to capacity packets a second from a sender that sends up to most.
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

// TestSearchSecondChance: a rate that the path can keep up passes even if the machine has a hiccup that loses
// a little.
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
	always := func(rate float64) (Trial, error) {
		return Trial{Sent: 100, Received: 98, Elapsed: time.Second}, nil
	}
	if _, n, err := Search(0.005, always); err == nil || n > 2*maxTrials {
		t.Errorf("2 %% lost at every rate: %v after %d trials", err, n)
	}
}

// TestSearchBelow: the strict search ends below the lax one, and it is no error if it finds no rate.
func TestSearchBelow(t *testing.T) {
	lossy := func(rate float64) (Trial, error) { // 0.1 % is lost above 50,000
		r, err := path{100_000, 250_000}.try(rate)
		if r.Sent > 50_000 {
			r.Received = min(r.Received, r.Sent*999/1000)
		}
		return r, err
	}
	lax, _, err := Search(0.005, lossy)
	if err != nil || lax.Delivered() < 94_000 {
		t.Fatalf("%v, %v", lax, err)
	}
	got, n, err := SearchBelow(0, lax, lossy)
	if err != nil || got.Loss() != 0 || got.Delivered() < 45_000 || got.Delivered() > 50_000 || n > maxTrials+1 {
		t.Errorf("%v after %d trials, %v, want about 50000/s", got, n, err)
	}
	if again, n, err := SearchBelow(0, got, lossy); err != nil || n != 0 || again != got {
		t.Errorf("from a trial without loss: %v after %d more, %v", again, n, err)
	}
	always := func(rate float64) (Trial, error) {
		return Trial{Sent: int64(rate), Received: int64(rate) - 1, Elapsed: time.Second}, nil
	}
	if got, n, err := SearchBelow(0, lax, always); err != nil || got != (Trial{}) || n > 2*maxTrials {
		t.Errorf("one lost at every rate: %v after %d trials, %v", got, n, err)
	}
}
