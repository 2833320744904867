package overlay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
	"weft/bench/report"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig(" rounds=2 sweeps=4 tcp=3s rungs=vxlan,socket wires=plain,full measures=tcp " +
		"receive=wait loss=0.01 frames=64,128 weftd=/x json=/j html=/h")
	if err != nil || c.Rounds != 2 || c.SweepRounds != 4 || c.TCP != 3*time.Second || len(c.Rungs) != 2 ||
		!slices.Equal(c.Wires, []string{"plain", "full"}) || !slices.Equal(c.Kinds, []report.Kind{report.TCP}) ||
		c.Receive != load.Wait || c.Weftd != "/x" || !slices.Equal(c.Frames, []int{64, 128}) || c.JSON != "/j" ||
		c.HTML != "/h" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseConfig(""); err != nil || len(c.Rungs) < 4 || c.Rounds < 3 ||
		!slices.Contains(c.Kinds, report.Mixed) {
		t.Errorf("default: %+v, %v", c, err)
	}
	if c, err := ParseConfig("rungs=all measures=all"); err != nil || len(c.Rungs) != 0 ||
		!slices.Equal(c.Kinds, report.Kinds()) {
		t.Errorf("all: %+v, %v", c, err)
	}
	_, err = ParseConfig("rounds=no trial=0s rungs=vlan wires=rope measures=x nonsense=1 receive=never " +
		"frames=1,no size=4")
	for _, want := range []string{"rounds=no", "positive", `rung "vlan"`, `wire "rope"`, `measure "x"`,
		"nonsense", "receive=never", "frame", "frames=1,no", "size"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

// TestRungsOfOneNode are measured when they are named, and compared with the bridge.
func TestRungsOfOneNode(t *testing.T) {
	all, err := choose(nil)
	if err != nil || slices.ContainsFunc(all, func(r Rung) bool { return r.way.onOneNode() }) ||
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
		if got := (Config{Rungs: c.rungs}); got.NeedsWeftd() != c.weftd || got.NeedsWeft() != c.weft {
			t.Errorf("%v: weftd %v, weft %v", c.rungs, got.NeedsWeftd(), got.NeedsWeft())
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
