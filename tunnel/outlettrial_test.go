package tunnel

import (
	"sync"
	"testing"
	"time"
)

// trial has c make one trial at now with one price for each outlet, and returns the outlet that is in use then.
func (c *choice) trial(t *testing.T, now int64, whole, runs uint64) Outlet {
	t.Helper()
	turns := map[Outlet]int{}
	for range trialSends {
		o, turn := c.take(now, trialLeast)
		if turn == noTurn {
			t.Fatalf("no turn after %v", turns)
		}
		turns[o]++
		price := map[Outlet]uint64{OutletWhole: whole, OutletRuns: runs}[o]
		if turn%trialBlock == 0 && price != priceVoid {
			price *= 100 // cold
		}
		c.end(turn, price, now)
	}
	if turns[OutletWhole] != turns[OutletRuns] {
		t.Fatalf("turns: %v", turns)
	}
	o, turn := c.take(now, trialLeast)
	if turn != noTurn {
		t.Fatal("a turn when the trial is over")
	}
	return o
}

func TestTrialsChoose(t *testing.T) {
	const w, r = OutletWhole, OutletRuns
	for _, c := range []struct {
		name   string
		set    Outlets
		prices [][2]uint64 // whole, runs
		want   []Outlet    // after each
	}{
		{"alike", Outlets{First: r, Try: true}, [][2]uint64{{90, 100}, {85, 100}, {110, 100}}, []Outlet{r, r, r}},
		{"other is cheaper three times", Outlets{First: r, Try: true}, [][2]uint64{{70, 100}, {70, 100}, {70, 100}}, []Outlet{r, r, w}},
		{"but not in a row", Outlets{First: r, Try: true}, [][2]uint64{{70, 100}, {70, 100}, {90, 100}, {70, 100}, {70, 100}}, []Outlet{r, r, r, r, r}},
		{"there and back", Outlets{First: w, Try: true}, [][2]uint64{{500, 100}, {500, 100}, {500, 100}, {500, 100}, {70, 100}, {70, 100}, {70, 100}}, []Outlet{w, w, r, r, r, r, w}},
		{"trusted", Outlets{First: w, Try: true, Trust: true}, [][2]uint64{{240, 100}, {240, 100}, {240, 100}, {240, 100}}, []Outlet{w, w, w, w}},
		{"trusted in vain", Outlets{First: w, Try: true, Trust: true}, [][2]uint64{{260, 100}, {260, 100}, {260, 100}, {170, 100}, {170, 100}, {170, 100}}, []Outlet{w, w, r, r, r, r}},
		{"trust comes back", Outlets{First: w, Try: true, Trust: true}, [][2]uint64{{260, 100}, {260, 100}, {260, 100}, {150, 100}, {150, 100}, {150, 100}}, []Outlet{w, w, r, r, r, w}},
		{"refused", Outlets{First: w, Try: true}, [][2]uint64{{priceFailed, 100}, {priceFailed, 100}, {priceFailed, 100}}, []Outlet{w, w, r}},
		{"nothing known of the other", Outlets{First: r, Try: true}, [][2]uint64{{priceVoid, 100}, {priceVoid, 100}, {priceVoid, 100}}, []Outlet{r, r, r}},
	} {
		choice := newChoice(c.set)
		for i, p := range c.prices {
			if got := choice.trial(t, int64(i+1)*int64(trialEvery), p[0], p[1]); got != c.want[i] {
				t.Errorf("%s, trial %d of whole %d, runs %d: %v, want %v", c.name, i, p[0], p[1], got, c.want[i])
			}
		}
		s := choice.stats()
		changes := uint64(0)
		for i, was := 0, c.set.First; i < len(c.want); i++ {
			if c.want[i] != was {
				was = c.want[i]
				changes++
			}
		}
		if s.Changes != changes || s.Now != c.want[len(c.want)-1] {
			t.Errorf("%s: %+v, want %d changes", c.name, s, changes)
		}
	}
}

// A trial comes when it is due, soon after one that has to be confirmed, and not for small superpackets, nor without Try.
func TestTrialsAreDue(t *testing.T) {
	c := newChoice(Outlets{First: OutletRuns, Try: true})
	start := int64(time.Hour)
	due := func(after time.Duration) bool { return start+int64(after) >= c.due.Load() }
	if _, turn := c.take(start, trialLeast-1); turn != noTurn {
		t.Error("a small one is sampled")
	}
	c.trial(t, start, 100, 100)
	if due(trialEvery-1) || !due(trialEvery) {
		t.Errorf("after a trial that changes nothing the next is due in %v", time.Duration(c.due.Load()-start))
	}
	start += int64(trialEvery)
	c.trial(t, start, 50, 100)
	if due(trialAgain-1) || !due(trialAgain) {
		t.Errorf("one that is to be confirmed is due in %v", time.Duration(c.due.Load()-start))
	}
	if s := c.stats(); s.Whole != 50 || s.Runs != 100 || s.Trials != 2 {
		t.Errorf("%+v", s)
	}
	if o, turn := newChoice(Outlets{First: OutletWhole}).take(start, trialLeast); o != OutletWhole || turn != noTurn {
		t.Errorf("without Try: %v, turn %d", o, turn)
	}
}

// Workers take turns of one trial side by side; each turn is given once, and the trial ends.
func TestTrialsOfManyWorkers(t *testing.T) {
	c := newChoice(Outlets{First: OutletRuns, Try: true})
	var now, turns [8]int64
	var wg sync.WaitGroup
	for i := range now {
		wg.Go(func() {
			for now[i] = 1; now[i] < 1000; now[i]++ {
				o, turn := c.take(now[i]*int64(trialAgain), trialLeast)
				if turn == noTurn {
					continue
				}
				turns[i]++
				c.end(turn, 100*uint64(o), now[i]*int64(trialAgain))
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for _, n := range turns {
		total += n
	}
	if s := c.stats(); total == 0 || uint64(total)/trialSends != s.Trials {
		t.Errorf("%d turns in %d trials of %d", total, s.Trials, trialSends)
	}
}

func TestTrialsDoNotAllocate(t *testing.T) {
	c := newChoice(Outlets{First: OutletRuns, Try: true})
	now := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		now += int64(trialAgain)
		if o, turn := c.take(now, trialLeast); turn != noTurn {
			c.end(turn, 100*uint64(o), now)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
