package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"weft/bench/machine"
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

// Out says where a run reports how it goes on. Any field may be zero.
type Out struct {
	// Lines gets a line in benchstat's form for every measurement, after each measure of a round.
	Lines io.Writer
	// Say is called before each measurement.
	Say func(Progress)
	// Whole is about how long the run takes.
	Whole time.Duration
}

// Stage is a part of a run, on one wire.
type Stage struct {
	// Wire is what all paths cross; the zero Wire if that is not known.
	Wire report.Wire
	// Raise returns the paths, which the stage closes. With an error it returns those that are there already.
	Raise func(ctx context.Context) ([]*Path, error)
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
	for _, s := range c.steps(c.measures("", 1500, false, cpus)) {
		n := paths
		if s.round > 0 {
			n -= once
		}
		d += time.Duration(n) * s.measure.cost
	}
	return d
}

// Run measures, stage by stage, and returns the document with rungs, measures, settings and this machine. The
// caller fills in what only it knows: topology and more notes. With an error Run still returns the
// document, with what was measured. A *GapsError says that it was not all, but that Run came to its end.
func Run(ctx context.Context, c Config, stages []Stage, reference string, out Out) (*report.Document, error) {
	d := report.New()
	d.Started, d.Settings, d.Reference = time.Now(), c.settings(), reference
	if err := c.Check(); err != nil {
		return d, err
	}
	watch, err := machine.Observe()
	if err != nil {
		return d, err
	}
	procs := runtime.GOMAXPROCS(ps)
	defer runtime.GOMAXPROCS(procs)
	r := &runner{c: c, d: d, out: out, procs: procs}
	for i := range stages {
		if err = r.stage(ctx, &stages[i]); err != nil {
			break
		}
	}
	d.Seconds = time.Since(d.Started).Seconds()
	d.Measures = measured(d.Measures)
	d.Notes = append(d.Notes, r.repeats...)
	d.Conclude()
	var unseen error
	d.Machine, unseen = watch.Since()
	err = errors.Join(err, unseen)
	if len(r.faults) > 0 {
		err = errors.Join(err, &GapsError{Faults: r.faults, Early: r.early})
	}
	return d, err
}

// stage raises the paths of a stage, and measures each in turns.
func (r *runner) stage(ctx context.Context, s *Stage) (err error) {
	r.paths, err = s.Raise(ctx)
	defer func() {
		for _, p := range r.paths {
			if p.Close != nil {
				p.Close()
			}
		}
	}()
	if err == nil && len(r.paths) == 0 {
		err = errors.New("there is no path to measure")
	}
	if err != nil {
		return err
	}
	r.wire, r.states = "", map[*Path]*state{}
	if s.Wire.Name != "" {
		r.wire, r.d.Wires = "wire "+s.Wire.Name+", ", append(r.d.Wires, s.Wire)
	}
	mtu, cpus := r.paths[0].MTU, r.paths[0].CPUs
	for _, p := range r.paths {
		mtu, cpus, r.states[p] = min(mtu, p.MTU), min(cpus, p.CPUs), &state{}
		if !slices.ContainsFunc(r.d.Rungs, func(have report.Rung) bool { return have.Name == p.Name }) {
			r.d.Rungs = append(r.d.Rungs, report.Rung{Name: p.Name, About: p.About, MTU: p.MTU, Once: p.Once})
		}
	}
	all := r.c.measures(s.Wire.Name, mtu, r.paths[0].IPv6, cpus)
	for i := range all {
		r.d.Measures = append(r.d.Measures, all[i].Measure)
	}
	return r.run(ctx, r.c.steps(all))
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
	out   Out
	procs int
	// over is how long the steps were estimated to take that are done.
	over time.Duration
	// repeats are notes on what had to be measured for longer, and faults are why there are gaps. early says
	// that a stage ended before its time.
	repeats []string
	faults  []error
	early   bool

	// These are of the stage that is under way: the wire in words, its paths and how they are doing.
	wire   string
	paths  []*Path
	states map[*Path]*state
}

// run takes the steps in order, as long as there is a path that has not broken down.
func (r *runner) run(ctx context.Context, steps []step) error {
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
			if r.broken() {
				r.early = true
				return nil
			}
		}
		if r.out.Lines == nil {
			continue
		}
		if err := r.d.WriteLines(r.out.Lines, s.measure.Key, s.round, r.procs); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) what(s step, p *Path, again string) string {
	return fmt.Sprintf("%sround %d of %d, %s: %s%s", r.wire, s.round+1, max(r.c.Rounds, r.c.PingRounds),
		s.measure.Title, p.Name, again)
}

// say reports progress; again is added to what it says. It corrects the estimate of what is left by how long
// the steps really took until now.
func (r *runner) say(s step, p *Path, again string) {
	if r.out.Say == nil {
		return
	}
	done := min(float64(r.over)/float64(max(r.out.Whole, 1)), 1)
	left := max(r.out.Whole-r.over, 0)
	if r.over > 0 {
		left = time.Duration(float64(time.Since(r.d.Started)) * float64(left) / float64(r.over))
	}
	r.out.Say(Progress{Done: done, Left: left, What: r.what(s, p, again)})
}
