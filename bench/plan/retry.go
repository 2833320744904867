package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weft/bench/report"
)

// A measurement that fails is repeated, since most fail for want of time: a machine that is busy with
// something else lets nothing run for as long as a short measurement lasts. factors say how many times as
// long each attempt lasts. A measure that fails each time leaves a gap, and the run goes on.
func factors() []time.Duration { return []time.Duration{1, 4, 16} }

// state is how a path is doing.
type state struct {
	// failing says that its latest measurement failed as often as it was tried. The next one is tried once, so
	// that a path that carries nothing does not take so many times as long.
	failing bool
	// broken is why the path is measured no more; nil while it is.
	broken error
}

// take measures one path in one step. The error is not nil if the run cannot go on.
func (r *runner) take(ctx context.Context, s step, p *Path) error {
	m, state := s.measure, r.states[p]
	gap := report.Gap{Rung: p.Name, Round: s.round + 1}
	if state.broken != nil {
		gap.Reason = "not tried, since the rung had broken down: " + firstLine(state.broken)
		r.d.AddGap(m.Key, gap)
		return nil
	}
	var first, last error
	for _, factor := range factors() {
		gap.Attempts++
		c := r.c.longer(factor)
		if gap.Attempts > 1 {
			r.say(s, p, fmt.Sprintf(", %d times as long since it failed", factor))
		}
		v, err := m.take(ctx, c, p)
		if err == nil {
			state.failing = false
			if len(v) > 0 {
				r.d.Add(report.Sample{Measure: m.Key, Rung: p.Name, Values: v})
			}
			if first != nil {
				r.repeats = append(r.repeats, fmt.Sprintf("%s of %s, round %d, was measured %d times as long as asked "+
					"for, since it failed before: %s",
					strings.TrimPrefix(m.Key, "measure="), p.Name, s.round+1, factor, firstLine(first)))
			}
			return nil
		}
		last = err
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s of %s: %w", m.Key, p.Name, err)
		}
		if p.Check != nil {
			state.broken = p.Check()
		}
		if state.broken != nil || state.failing {
			break
		}
	}
	state.failing = true
	fault := fmt.Errorf("%s of %s: %w", m.Key, p.Name, last)
	gap.Reason = firstLine(last)
	if state.broken != nil {
		fault = errors.Join(fault, state.broken)
		gap.Reason += "; " + firstLine(state.broken)
	}
	r.d.AddGap(m.Key, gap)
	r.faults = append(r.faults, fault)
	return nil
}

// broken reports whether no path is left to measure.
func (r *runner) broken() bool {
	for _, s := range r.states {
		if s.broken == nil {
			return false
		}
	}
	return true
}

// firstLine returns that of the error's text.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ":")
}

// GapsError says that something could not be measured.
type GapsError struct {
	// Faults are why, one for each gap of a path that had not broken down before.
	Faults []error
	// Early is set if the run ended before its time, since no path was left to measure.
	Early bool
}

// Error implements error.
func (e *GapsError) Error() string {
	text := "1 measurement failed and is a gap in the result"
	if n := len(e.Faults); n > 1 {
		text = fmt.Sprintf("%d measurements failed and are gaps in the result", n)
	}
	for _, f := range e.Faults {
		text += "\n" + f.Error()
	}
	return text
}

// Unwrap lets errors.Is and errors.As find the faults.
func (e *GapsError) Unwrap() []error { return e.Faults }
