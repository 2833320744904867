package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"weft/bench/report"
)

// ps is GOMAXPROCS while it is measured: more than the ends of a measurement, so that none of them
// waits for another in Go's scheduler.
const ps = 16

// Progress says what is measured next, and how far the run is.
type Progress struct {
	// Done is the share of the run that is over, 0 to 1, and Left about how long the rest takes.
	Done float64
	Left time.Duration
	// What says in words which round, which measure and which path.
	What string
}

// Out says where a run reports how it goes on. Either field may be nil.
type Out struct {
	// Lines gets a line in benchstat's form for every measurement, after each measure of a round.
	Lines io.Writer
	// Say is called before each measurement.
	Say func(Progress)
}

// step is one measure of one round.
type step struct {
	measure *measure
	round   int
}

// steps returns the measures of all rounds in order.
func (c Config) steps(all []measure) (l []step) {
	for round := range max(c.Rounds, c.PingRounds) {
		for i := range all {
			if round < c.roundsOf(all[i].Kind) {
				l = append(l, step{&all[i], round})
			}
		}
	}
	return l
}

// roundsOf returns in how many rounds a kind is measured: what takes long has fewer, and what varies has
// more.
func (c Config) roundsOf(k report.Kind) int {
	switch k {
	case report.Frames, report.Super:
		return min(c.Rounds, c.SweepRounds)
	case report.PingPong:
		return c.PingRounds
	default:
		return c.Rounds
	}
}

// takes says whether the path takes part in a round.
func (p *Path) takes(round int) bool { return !p.Once || round == 0 }

// Estimate returns about how long Run takes for so many paths, of which once are measured in the first round
// only.
func (c Config) Estimate(paths, once, cpus int) (d time.Duration) {
	for _, s := range c.steps(c.measures(1500, false, cpus)) {
		n := paths
		if s.round > 0 {
			n -= once
		}
		d += time.Duration(n) * s.measure.cost
	}
	return d
}

// Run measures every path and returns the document with rungs, measures and settings. The caller
// fills in what only it knows: machine, topology and notes. With an error Run still returns the
// document, with what was measured. A *GapsError says that it was not all, but that Run came to its end.
func Run(ctx context.Context, c Config, paths []*Path, reference string, out Out) (*report.Document, error) {
	d := report.New()
	d.Started, d.Settings, d.Reference = time.Now(), c.settings(), reference
	if err := c.Check(); err != nil {
		return d, err
	}
	if len(paths) == 0 {
		return d, errors.New("there is no path to measure")
	}
	mtu, cpus := paths[0].MTU, paths[0].CPUs
	for _, p := range paths {
		mtu, cpus = min(mtu, p.MTU), min(cpus, p.CPUs)
		d.Rungs = append(d.Rungs, report.Rung{Name: p.Name, About: p.About, MTU: p.MTU, Once: p.Once})
	}
	all := c.measures(mtu, paths[0].IPv6, cpus)
	if c.Wire.Name != "" {
		d.Wires = []report.Wire{c.Wire}
	}
	for i := range all {
		d.Measures = append(d.Measures, all[i].Measure)
	}
	procs := runtime.GOMAXPROCS(ps)
	defer runtime.GOMAXPROCS(procs)
	r := &runner{c: c, d: d, paths: paths, out: out, start: time.Now(), states: map[*Path]*state{}}
	for _, p := range paths {
		r.states[p] = &state{}
	}
	once := 0
	for _, p := range paths {
		if p.Once {
			once++
		}
	}
	r.whole = c.Estimate(len(paths), once, cpus)
	err := r.run(ctx, c.steps(all), procs)
	d.Seconds = time.Since(d.Started).Seconds()
	d.Measures = measured(d.Measures)
	d.Notes = append(d.Notes, r.repeats...)
	for _, p := range paths {
		for _, n := range p.Notes {
			if !slices.Contains(d.Notes, n) {
				d.Notes = append(d.Notes, n)
			}
		}
	}
	d.Conclude()
	return d, err
}

// measured returns the measures that have results, or gaps in their place.
func measured(all []report.Measure) []report.Measure {
	kept := all[:0]
	for _, m := range all {
		if len(m.Results)+len(m.Gaps) > 0 {
			kept = append(kept, m)
		}
	}
	return kept
}

// runner is a run that is under way.
type runner struct {
	c     Config
	d     *report.Document
	paths []*Path
	out   Out
	start time.Time
	// whole is how long all steps were estimated to take, and over how long those were that are done.
	whole, over time.Duration
	// states are how the paths are doing, repeats are notes on what had to be measured for longer, and faults
	// are why there are gaps.
	states  map[*Path]*state
	repeats []string
	faults  []error
}

func (r *runner) run(ctx context.Context, steps []step, procs int) error {
	for _, s := range steps {
		for _, p := range r.paths {
			if !p.takes(s.round) {
				continue
			}
			r.say(s, p, "")
			if err := r.take(ctx, s, p); err != nil {
				return err
			}
			r.over += s.measure.cost
		}
		if r.out.Lines == nil {
			continue
		}
		if err := r.d.WriteLines(r.out.Lines, s.measure.Key, s.round, procs); err != nil {
			return err
		}
	}
	if len(r.faults) > 0 {
		return &GapsError{Faults: r.faults}
	}
	return nil
}

func (r *runner) what(s step, p *Path, again string) string {
	wire := ""
	if r.c.Wire.Name != "" {
		wire = "wire " + r.c.Wire.Name + ", "
	}
	return fmt.Sprintf("%sround %d of %d, %s: %s%s", wire, s.round+1, max(r.c.Rounds, r.c.PingRounds),
		s.measure.Title, p.Name, again)
}

// say reports progress; again is added to what it says. It corrects the estimate of what is left by how long
// the steps really took until now.
func (r *runner) say(s step, p *Path, again string) {
	if r.out.Say == nil {
		return
	}
	done := float64(r.over) / float64(max(r.whole, 1))
	left := r.whole - r.over
	if r.over > 0 {
		left = time.Duration(float64(time.Since(r.start)) * float64(left) / float64(r.over))
	}
	r.out.Say(Progress{Done: done, Left: left, What: r.what(s, p, again)})
}
