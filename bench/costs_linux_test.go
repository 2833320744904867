package bench

import (
	"flag"
	"os"
	"testing"
	"time"

	"weft/bench/costs"
	"weft/bench/machine"
)

// The flags that make bench-guard passes.
var (
	measureCosts = flag.Bool("costs", false, "measure, and compare with the baseline")
	updateCosts  = flag.Bool("update", false, "with -costs: write a new baseline")
)

const (
	baselineFile = "testdata/baseline.txt"
	// costTolerance is the share by which a function may seem dearer than in the baseline. The same
	// code differed by up to 9 % when four other programs kept the two CPUs busy.
	costTolerance = 0.2
)

// TestCosts checks that the baseline can be read and that a function that became dearer is
// found. With -costs it measures, which takes a minute and needs a machine that does nothing else.
func TestCosts(t *testing.T) {
	f, err := os.Open(baselineFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := costs.ReadBaseline(f)
	if err != nil || len(b.Figures) == 0 {
		t.Fatalf("%s: %d benchmarks, %v", baselineFile, len(b.Figures), err)
	}
	dearer := map[string]costs.Figure{}
	for name, was := range b.Figures {
		dearer[name] = costs.Figure{Ratio: 2*was.Ratio + 1, Allocs: was.Allocs}
	}
	if _, faults := costs.Compare(b, b.Figures, costTolerance); faults != 0 {
		t.Errorf("the baseline has %d faults compared with itself", faults)
	}
	if _, faults := costs.Compare(b, dearer, costTolerance); faults != len(b.Figures) {
		t.Errorf("of %d functions that became dearer %d were found", len(b.Figures), faults)
	}
	if *measureCosts {
		compareCosts(t, b)
	}
}

func compareCosts(t *testing.T, b costs.Baseline) {
	m, err := machine.Observe()
	if err != nil {
		t.Fatal(err)
	}
	plan := costs.Plan{Packages: []string{"weft/encap", "weft/tunnel", "weft/bench"}, Rounds: 20, Time: 3 * time.Millisecond}
	now, err := costs.Measure(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if *updateCosts {
		f, err := os.Create(baselineFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := (costs.Baseline{Machine: m.String(), Figures: now}).Write(f); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if b.Machine != m.String() {
		t.Logf("the baseline is from another machine (%s; this is %s): take what follows as a hint", b.Machine, m.String())
	}
	rows, faults := costs.Compare(b, now, costTolerance)
	if err := costs.WriteTable(os.Stdout, rows); err != nil {
		t.Error(err)
	}
	if faults > 0 && !*updateCosts {
		t.Errorf("%d of %d benchmarks are dearer than the baseline by more than %.0f %%, allocate more, or are gone (%s)",
			faults, len(b.Figures), 100*costTolerance, m.Load())
	}
}
