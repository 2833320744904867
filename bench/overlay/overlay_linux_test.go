package overlay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/bench/plan"
	"weft/bench/report"
)

func TestConfigCheckNamesEveryFault(t *testing.T) {
	c := Config{Config: plan.Default(), Rungs: []string{"vlan"}, Wires: []string{"rope"}}
	c.Trial, c.Size, c.Kinds = 0, 4, []report.Kind{"x"}
	err := c.Check()
	for _, want := range []string{"positive", `rung "vlan"`, `wire "rope"`, `measure "x"`, "size"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

// TestRungsOfOneNode are measured when they are named, and compared with the bridge.
func TestRungsOfOneNode(t *testing.T) {
	all, err := choose(nil)
	if err != nil || slices.ContainsFunc(all, func(r Rung) bool { return r.onOneNode() }) ||
		!slices.ContainsFunc(all, func(r Rung) bool { return r.Name == Direct }) {
		t.Errorf("by default %v, %v", all, err)
	}
	if usual := Usual(); slices.Contains(usual, Direct) || slices.Contains(usual, NodeDirect) {
		t.Errorf("usually %v", usual)
	}
	rungs, err := choose([]string{NodeDirect, NodeBridge})
	if err != nil || len(rungs) != 2 || reference(rungs) != NodeBridge {
		t.Errorf("%v, %v: compared with %q", rungs, err, reference(rungs))
	}
	for _, c := range []struct {
		rungs       []string
		weftd, weft bool
	}{{[]string{NodeBridge, Reference}, false, false}, {[]string{Auto}, true, false},
		{[]string{Direct}, true, true}, {[]string{NodeDirect}, true, true}} {
		if got := (Config{Rungs: c.rungs}); got.needs(byWeftd) != c.weftd || got.needs(directly) != c.weft {
			t.Errorf("%v: weftd %v, weft %v", c.rungs, got.needs(byWeftd), got.needs(directly))
		}
	}
}

func TestEstimate(t *testing.T) {
	for name, want := range map[string]struct {
		c        Config
		from, to time.Duration
	}{
		"quick": {Config{Config: plan.Quick(), Rungs: Usual(), Wires: []string{"plain"}}, 10 * time.Second,
			45 * time.Second},
		"default": {Config{Config: plan.Default(), Rungs: Usual(), Wires: []string{"uso", "plain"}},
			90 * time.Second, 5 * time.Minute},
		"full": {Config{Config: plan.Full(), Wires: []string{"full", "uso", "plain"}}, 5 * time.Minute,
			45 * time.Minute},
	} {
		got := want.c.Estimate(2)
		t.Logf("%s: %s", name, got)
		if got < want.from || got > want.to {
			t.Errorf("%s: %s, want %s to %s", name, got, want.from, want.to)
		}
	}
}
