package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/report"
)

// stalling is a path whose bulk data arrive only if they are measured for long enough, which may differ from
// one measurement to the next.
type stalling struct {
	fake
	needs []time.Duration // of each measurement in turn; the last is for all that follow
	asked []time.Duration
}

func (s *stalling) TCP(ctx context.Context, streams int, warmUp, last time.Duration) (load.TCPResult, error) {
	s.asked = append(s.asked, last)
	if last < s.needs[0] {
		return load.TCPResult{}, fmt.Errorf("no byte arrived within %s", last)
	}
	if len(s.needs) > 1 {
		s.needs = s.needs[1:]
	}
	return s.fake.TCP(ctx, streams, warmUp, last)
}

func tcpOnly(rounds int) Config {
	c := Quick()
	c.Kinds, c.Rounds, c.TCP = []report.Kind{report.TCP}, rounds, 100*time.Millisecond
	return c
}

const ms = time.Millisecond

// TestAgainForLonger: what fails for want of time is measured for longer, and the report says so; it is no
// error.
func TestAgainForLonger(t *testing.T) {
	ends := &stalling{needs: []time.Duration{1000 * ms, 100 * ms}}
	var said []string
	d, err := Run(t.Context(), tcpOnly(1), stage(&Path{Name: "a", MTU: 1500, CPUs: 1, Ends: ends}), "",
		Out{Say: func(p Progress) { said = append(said, p.What) }})
	if err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{100 * ms, 400 * ms, 1600 * ms, 100 * ms}; !slices.Equal(ends.asked, want) {
		t.Errorf("measured for %v, want %v", ends.asked, want)
	}
	if len(d.Measures) != 2 || len(d.Measures[0].Results) != 1 || len(d.Measures[0].Gaps) != 0 {
		t.Errorf("%+v", d.Measures)
	}
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "tcp/streams=1") {
		t.Errorf("notes %q", d.Notes)
	}
	if len(said) != 4 || !strings.Contains(said[2], "16") {
		t.Errorf("said %q", said)
	}
}

// TestWhatFailsIsAGap: it leaves a gap with its reason, everything else is measured, no ratio is taken of the
// gap, and the error comes at the end.
func TestWhatFailsIsAGap(t *testing.T) {
	// The reference stalls for good in round 2 with one stream and is tried once only with four, where it works
	// again.
	ref := &stalling{needs: []time.Duration{0, 0, time.Hour}}
	recover := &recovering{stalling: ref}
	ok := &fake{}
	paths := []*Path{{Name: "ref", MTU: 1500, CPUs: 1, Ends: recover},
		{Name: "ok", MTU: 1500, CPUs: 1, Ends: ok}}
	var lines strings.Builder
	d, err := Run(t.Context(), tcpOnly(3), stage(paths...), "ref", Out{Lines: &lines})
	var gaps *GapsError
	if !errors.As(err, &gaps) || gaps.Early || len(gaps.Faults) != 1 ||
		!strings.Contains(err.Error(), "measure=tcp/streams=1") {
		t.Fatalf("error %v", err)
	}
	one, four := d.Measure("measure=tcp/streams=1"), d.Measure("measure=tcp/streams=4")
	if want := []report.Gap{{Rung: "ref", Round: 2, Attempts: 3}}; !slices.Equal(gapsOf(one), want) ||
		len(four.Gaps) != 0 {
		t.Errorf("gaps %+v and %+v", one.Gaps, four.Gaps)
	}
	if n, m := len(one.Result("ref").Figures[0].Rounds), len(one.Result("ok").Figures[0].Rounds); n != 2 ||
		m != 3 {
		t.Errorf("%d rounds of ref and %d of ok", n, m)
	}
	if n, m := len(one.Result("ok").Ratio.Rounds), len(four.Result("ok").Ratio.Rounds); n != 2 || m != 3 {
		t.Errorf("%d ratios with one stream and %d with four", n, m)
	}
	if n := strings.Count(lines.String(), "streams=1/rung=ref"); n != 2 {
		t.Errorf("%d lines of ref in\n%s", n, &lines)
	}
}

// recovering works again after three failures.
type recovering struct {
	*stalling
	failed int
}

func (r *recovering) TCP(ctx context.Context, streams int, warmUp, last time.Duration) (load.TCPResult,
	error) {
	v, err := r.stalling.TCP(ctx, streams, warmUp, last)
	if err != nil {
		if r.failed++; r.failed == 3 {
			r.needs = []time.Duration{0}
		}
	}
	return v, err
}

// TestAPathThatCarriesNothing: it is tried again for longer once, and from then on once for each measure.
func TestAPathThatCarriesNothing(t *testing.T) {
	dead := &stalling{needs: []time.Duration{time.Hour}}
	paths := []*Path{{Name: "dead", MTU: 1500, CPUs: 1, Ends: dead},
		{Name: "ok", MTU: 1500, CPUs: 1, Ends: &fake{}}}
	d, err := Run(t.Context(), tcpOnly(3), stage(paths...), "ok", Out{})
	if err == nil || len(dead.asked) != 3+5 {
		t.Errorf("%v after %v", err, dead.asked)
	}
	for _, m := range d.Measures {
		if len(m.Gaps) != 3 || len(m.Results) != 1 || len(m.Result("ok").Figures[0].Rounds) != 3 {
			t.Errorf("%+v", m)
		}
	}
}

// TestABrokenPath: a path whose daemon ended is left alone, and the others are measured to the end.
func TestABrokenPath(t *testing.T) {
	broken := &stalling{needs: []time.Duration{time.Hour}}
	paths := []*Path{
		{Name: "broken", MTU: 1500, CPUs: 1, Ends: broken, Check: func() error {
			return errors.New("its daemon ended:\nand the log of it")
		}},
		{Name: "ok", MTU: 1500, CPUs: 1, Ends: &fake{}},
	}
	d, err := Run(t.Context(), tcpOnly(2), stage(paths...), "", Out{})
	var gaps *GapsError
	if !errors.As(err, &gaps) || gaps.Early || len(gaps.Faults) != 1 || len(broken.asked) != 1 ||
		!strings.Contains(err.Error(), "the log of it") {
		t.Errorf("%v after %v", err, broken.asked)
	}
	want := []report.Gap{{Rung: "broken", Round: 1}, {Rung: "broken", Round: 2}} // not tried
	if m := d.Measure("measure=tcp/streams=4"); !slices.Equal(gapsOf(m), want) ||
		len(m.Result("ok").Figures[0].Rounds) != 2 {
		t.Errorf("%+v", m)
	}
}

// TestAnEndIsNoGap: a run that is told to end does so at once.
func TestAnEndIsNoGap(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ends := &stalling{needs: []time.Duration{time.Hour}}
	path := &Path{Name: "a", MTU: 1500, CPUs: 1, Ends: ends, Check: func() error {
		t.Error("asked for the path's health")
		return nil
	}}
	_, err := Run(ctx, tcpOnly(1), stage(path), "", Out{Say: func(Progress) { cancel() }})
	var gaps *GapsError
	if err == nil || errors.As(err, &gaps) || len(ends.asked) != 1 {
		t.Errorf("%v after %v", err, ends.asked)
	}
}

// gapsOf are the gaps of a measure without their reasons.
func gapsOf(m *report.Measure) []report.Gap {
	out := slices.Clone(m.Gaps)
	for i := range out {
		out[i].Reason = ""
	}
	return out
}
