package plan

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/report"
)

// fake is a path that loses what is sent above its capacity, and notes what is asked of it.
type fake struct {
	capacity float64 // datagrams a second
	sizes    []int   // of the traffic opened
	open     int
	fail     error
}

func (f *fake) TCP(context.Context, int, time.Duration, time.Duration) (load.TCPResult, error) {
	return load.TCPResult{Bytes: 1e9, Elapsed: time.Second, CPU: load.CPU{Machine: time.Second, Switches: 1000}},
		f.fail
}

func (f *fake) Open(_ context.Context, t load.Traffic) (Flow, error) {
	f.open++
	f.sizes = append(f.sizes, t.Payloads...)
	return f, nil
}

func (f *fake) Trial(_ context.Context, rate float64, _ time.Duration) (load.Trial, error) {
	if rate == 0 {
		rate = 2 * f.capacity
	}
	return load.Trial{Sent: int64(rate), Received: int64(min(rate, f.capacity)), Elapsed: time.Second}, nil
}

func (f *fake) Close() error { f.open--; return nil }

func (f *fake) PingPong(context.Context, int, time.Duration, Placement) ([]time.Duration, error) {
	return []time.Duration{time.Microsecond}, nil
}

// stage is one whose paths are there already.
func stage(paths ...*Path) []Stage {
	return []Stage{{Raise: func(context.Context) ([]*Path, error) { return paths, nil }}}
}

// TestRun: every measure is taken on every path, in turns, and on the path with Once only in the first round.
func TestRun(t *testing.T) {
	slow, fast, once := &fake{capacity: 1e5}, &fake{capacity: 2e5}, &fake{capacity: 1e6}
	paths := []*Path{
		{Name: "once", MTU: 1500, Once: true, CPUs: 2, Ends: once},
		{Name: "slow", MTU: 1450, CPUs: 2, Ends: slow},
		{Name: "fast", MTU: 1472, CPUs: 2, Ends: fast, Memory: func() (uint64, uint64, error) {
			return 1 << 20, 2 << 20, nil
		}},
	}
	var turns []string
	c := Default()
	c.Rounds, c.PingRounds = 2, 3
	d, err := Run(t.Context(), c, stage(paths...), "slow",
		Out{Say: func(p Progress) { turns = append(turns, p.What) }})
	if err != nil || slow.open+fast.open+once.open != 0 {
		t.Fatalf("%v, %d flows left open", err, slow.open+fast.open+once.open)
	}
	want := []string{"round 1 of 3, TCP, 1 stream: once", "round 1 of 3, TCP, 1 stream: slow",
		"round 1 of 3, TCP, 1 stream: fast", "round 1 of 3, TCP, 4 streams: once"}
	if !slices.Equal(turns[:4], want) {
		t.Errorf("turns %q", turns[:4])
	}
	for _, m := range d.Measures {
		rounds := 2
		switch m.Kind {
		case report.Frames, report.Super:
			rounds = 1
		case report.PingPong:
			rounds = 3
		case report.TCP, report.Packets, report.Mixed:
		case report.Memory:
			if len(m.Results) != 1 || m.Results[0].Rung != "fast" || m.Results[0].Figures[1].Median != 2 {
				t.Errorf("memory: %+v", m.Results)
			}
			continue
		}
		if len(m.Results) != 3 || len(m.Result("once").Figures[0].Rounds) != 1 ||
			len(m.Result("fast").Figures[0].Rounds) != rounds {
			t.Errorf("%s: %+v", m.Key, m.Results)
		}
		if m.Result("once").Ratio != nil || m.Result("fast").Ratio == nil {
			t.Errorf("%s: ratios %v and %v", m.Key, m.Result("once").Ratio, m.Result("fast").Ratio)
		}
	}
	mixed := d.Measure("measure=mixed/flows=1000/send=sendto/receive=drain")
	if r := mixed.Result("fast").Ratio.Median; r < 1.9 || r > 2.1 {
		t.Errorf("twice the capacity: ratio %g", r)
	}
	tcp := d.Measure("measure=tcp/streams=1").Result("fast")
	if f, want := tcp.Figure("context_switches_per_superpacket"), 1000/(1e9/65536); f == nil ||
		math.Abs(f.Median-want) > want/1e6 {
		t.Errorf("switches %+v, want %g", f, want)
	}
	if most := slices.Max(fast.sizes); most != 1450-ipv4Header-udpHeader {
		t.Errorf("the largest payload is %d, and the smallest MTU 1450", most)
	}
}

// TestStages: each wire has measures and labs of its own, and the next one follows although a path broke down
// on the one before.
func TestStages(t *testing.T) {
	c := Quick()
	c.Kinds = []report.Kind{report.TCP}
	var closed []string
	on := func(wire string, fail error) Stage {
		return Stage{Wire: report.Wire{Name: wire}, Raise: func(context.Context) ([]*Path, error) {
			return []*Path{{Name: "a", MTU: 1500, CPUs: 1, Ends: &fake{fail: fail},
				Check: func() error { return fail }, Close: func() { closed = append(closed, wire) }}}, nil
		}}
	}
	d, err := Run(t.Context(), c, []Stage{on("uso", errors.New("broken")), on("plain", nil)}, "", Out{})
	var gaps *GapsError
	if !errors.As(err, &gaps) || !gaps.Early || !slices.Equal(closed, []string{"uso", "plain"}) {
		t.Errorf("%v, closed %v", err, closed)
	}
	if len(d.Rungs) != 1 || len(d.Wires) != 2 || len(d.Measures) != 3 || len(d.Measures[0].Gaps) != 1 ||
		d.Measures[2].Wire != "plain" || len(d.Measures[2].Results) != 1 {
		t.Errorf("%+v", d)
	}
	raise := errors.New("no lab")
	last := Stage{Wire: report.Wire{Name: "full"}, Raise: func(context.Context) ([]*Path, error) {
		return nil, raise
	}}
	if d, err := Run(t.Context(), c, []Stage{on("uso", nil), last}, "", Out{}); !errors.Is(err, raise) ||
		len(d.Measures) != 2 {
		t.Errorf("%v: %+v", err, d)
	}
}

// TestRunEndsEarly: if a run ends early, the document has what was measured until then.
func TestRunEndsEarly(t *testing.T) {
	c := Quick()
	c.Kinds = []report.Kind{report.PingPong, report.TCP}
	broken := errors.New("broken")
	path := &Path{Name: "a", MTU: 1500, CPUs: 1, Ends: &fake{fail: broken}, Check: func() error {
		return errors.New("its daemon ended")
	}}
	d, err := Run(t.Context(), c, stage(path), "", Out{})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "its daemon ended") ||
		!strings.Contains(err.Error(), "measure=tcp") {
		t.Errorf("error %v", err)
	}
	var gaps *GapsError
	if !errors.As(err, &gaps) || !gaps.Early {
		t.Errorf("error %#v: want that it ended early", err)
	}
	if len(d.Measures) != 2 || d.Measures[0].Placement != "any" || len(d.Measures[0].Gaps) != 0 {
		t.Errorf("%+v: want the ping-pong, which one CPU has no two placements of", d.Measures)
	}
	if m := d.Measures[1]; m.Kind != report.TCP || len(m.Results) != 0 ||
		!slices.Equal(m.Gaps, []report.Gap{{Rung: "a", Round: 1, Attempts: 1,
			Reason: "broken; its daemon ended"}}) {
		t.Errorf("%+v: want a gap of TCP, which was not tried again without its daemon", m)
	}
	if _, err := Run(t.Context(), c, stage(), "", Out{}); err == nil {
		t.Error("nothing to measure, and no error")
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		frame, mtu int
		ipv6       bool
		want       int
	}{
		{64, 1450, false, 18}, {64, 1450, true, load.MinPayload}, {1518, 1500, false, 1472},
		{1518, 1450, false, 1422}, {1518, 1450, true, 1402},
		{65535, 65536, false, 65489}, {65535, 65535, true, 65469},
	} {
		if got := fit(c.frame, c.mtu, c.ipv6); got != c.want {
			t.Errorf("frame %d, MTU %d, IPv6 %v: payload %d, want %d", c.frame, c.mtu, c.ipv6, got, c.want)
		}
	}
}

func TestCheckHasEveryFault(t *testing.T) {
	err := Config{Kinds: []report.Kind{"speed"}, Frames: []int{63}, Size: 1}.Check()
	for _, want := range []string{"speed", "63", "size of 1", "loss of 0", "positive"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
	for _, c := range []Config{Default(), Quick(), Full()} {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
}
