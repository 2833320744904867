package overlay

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/test/netns"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig(" rounds=2 sweeps=4 tcp=3s rungs=vxlan,socket wires=plain,full measures=tcp receive=wait loss=0.01 frames=64,128 weftd=/x json=/j html=/h")
	if err != nil || c.Rounds != 2 || c.SweepRounds != 4 || c.TCP != 3*time.Second || len(c.Rungs) != 2 || !slices.Equal(c.Wires, []string{"plain", "full"}) || !slices.Equal(c.Kinds, []report.Kind{report.TCP}) ||
		c.Receive != load.Wait || c.Weftd != "/x" || !slices.Equal(c.Frames, []int{64, 128}) || c.JSON != "/j" || c.HTML != "/h" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseConfig(""); err != nil || len(c.Rungs) < 4 || c.Rounds < 3 || !slices.Contains(c.Kinds, report.Mixed) {
		t.Errorf("default: %+v, %v", c, err)
	}
	if c, err := ParseConfig("rungs=all measures=all"); err != nil || len(c.Rungs) != 0 || !slices.Equal(c.Kinds, report.Kinds()) {
		t.Errorf("all: %+v, %v", c, err)
	}
	_, err = ParseConfig("rounds=no trial=0s rungs=vlan wires=rope measures=x nonsense=1 receive=never frames=1,no size=4")
	for _, want := range []string{"rounds=no", "to be positive", `rung "vlan"`, `wire "rope"`, `measure "x"`, "nonsense", "receive=never", "frame of 1", "frames=1,no", "size of 4"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

// TestEveryKind makes a whole run over the kernel's own rungs and the bare link, as short as can be.
// How fast they are does not matter here.
func TestEveryKind(t *testing.T) {
	netns.TUN(t)
	c := Config{Config: plan.Quick(), Rungs: []string{Reference, "veth", "host-gw"}, Wires: []string{"full", "plain"}}
	c.Kinds, c.Loss, c.Frames = report.Kinds(), 0.5, []int{64, 1518} // so that it passes on a machine that does other things meanwhile
	var (
		lines  bytes.Buffer
		shares []float64
		d      *report.Document
		err    error
	)
	for longer := time.Millisecond; longer <= 16*time.Millisecond; longer *= 4 { // on one that had no time for either end, longer
		c.TCP, c.WarmUp, c.Trial, c.Ping = 20*longer, 5*longer, 10*longer, 60*longer
		shares = []float64{0}
		lines.Reset()
		d, err = Run(t.Context(), c, plan.Out{Lines: &lines, Say: func(p plan.Progress) { shares = append(shares, p.Done) }}, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "no byte arrived within") && !strings.Contains(err.Error(), "no rate lost less than") {
			break
		}
		t.Logf("%s is too short: %v", c.TCP, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Rungs) != 3 || len(d.Wires) != 2 || d.Wires[1].Name != "plain" || d.Reference != Reference || d.Seconds <= 0 || d.Machine.Kernel == "" || len(d.Notes) == 0 {
		t.Errorf("%+v", d)
	}
	kinds := map[report.Kind]int{}
	for _, m := range d.Measures {
		kinds[m.Kind]++
		if len(m.Results) != 3 {
			t.Errorf("%s: %d results, want 3", m.Key, len(m.Results))
		}
		for _, r := range m.Results {
			if f := r.Figures[0]; f.Median <= 0 || len(f.Rounds) != 1 || (r.Ratio == nil) != (r.Rung == "veth") {
				t.Errorf("%s of %s: %+v, ratio %v", m.Key, r.Rung, f, r.Ratio)
			}
			if m.Kind == report.PingPong && r.RoundTrips.Count() == 0 {
				t.Errorf("%s of %s: no round trips", m.Key, r.Rung)
			}
			if !strings.Contains(lines.String(), "BenchmarkOverlay/"+m.Key+"/rung="+r.Rung+"-") {
				t.Errorf("%s of %s has no line for benchstat", m.Key, r.Rung)
			}
		}
	}
	for _, k := range report.Kinds() {
		if k != report.Memory && kinds[k] == 0 { // no daemon here
			t.Errorf("nothing of kind %s", k)
		}
	}
	if m := d.Measure("measure=frames/frame=1518/send=sendto/receive=drain/wire=plain"); m == nil || m.Packet != 1450 || m.Frame != 1468 || m.Payload != 1422 {
		t.Errorf("a frame of 1518 bytes through an MTU of 1450: %+v", m)
	}
	if m := d.Measure("measure=frames/frame=64/send=sendto/receive=drain/wire=plain"); m == nil || m.Packet != 46 || m.Frame != 64 || m.Payload != 18 {
		t.Errorf("a frame of 64 bytes: %+v", m)
	}
	if last := shares[len(shares)-1]; !slices.IsSorted(shares) || last > 1 || last < 0.8 {
		t.Errorf("progress %v", shares)
	}
}

// TestRungsOfOneNode are measured when they are named, and compared with the bridge.
func TestRungsOfOneNode(t *testing.T) {
	all, err := choose(nil)
	if err != nil || slices.ContainsFunc(all, func(r Rung) bool { return r.way.onOneNode() }) || !slices.ContainsFunc(all, func(r Rung) bool { return r.Name == Direct }) {
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
	}{{[]string{NodeBridge, Reference}, false, false}, {[]string{Auto}, true, false}, {[]string{Direct}, true, true}, {[]string{NodeDirect}, true, true}} {
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
		"quick":   {Config{Config: plan.Quick(), Rungs: Usual(), Wires: []string{"plain"}}, 10 * time.Second, 45 * time.Second},
		"default": {Config{Config: plan.Default(), Rungs: Usual(), Wires: []string{"uso", "plain"}}, 90 * time.Second, 5 * time.Minute},
		"full":    {Config{Config: plan.Full(), Wires: []string{"full", "uso", "plain"}}, 5 * time.Minute, 45 * time.Minute},
	} {
		got := want.c.Estimate(2)
		t.Logf("%s: %s", name, got)
		if got < want.from || got > want.to {
			t.Errorf("%s: %s, want %s to %s", name, got, want.from, want.to)
		}
	}
}
