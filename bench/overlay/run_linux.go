package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"weft/test/lab"
)

// ps is how many goroutines may run at once while it is measured: more than there are
// ends of a measurement, so that none waits for another in Go's scheduler.
const ps = 16

// Run builds the labs, measures, and takes them down again. After each measure of a round
// it writes a benchmark line for each rung to w; what is being done goes to say.
func Run(ctx context.Context, c Config, w io.Writer, say func(string)) (r Report, err error) {
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	rungs := c.rungs()
	if c.Weftd == "" && slices.ContainsFunc(rungs, func(r Rung) bool { return r.Driver == lab.Weftd }) {
		if c.Weftd, err = build(ctx, dir); err != nil {
			return r, err
		}
	}
	if r.Before, err = ReadMachine(); err != nil {
		return r, err
	}
	beds, err := raise(ctx, c, c.Weftd, say)
	defer func() {
		for _, b := range beds {
			b.lab.Close()
		}
	}()
	if err != nil {
		return r, err
	}
	procs := runtime.GOMAXPROCS(ps)
	defer runtime.GOMAXPROCS(procs)
	for round := range c.Rounds {
		for _, m := range c.measures() {
			if err := takeTurns(ctx, &r, m, beds, round); err != nil {
				return r, err
			}
			if err := r.writeLines(w, m.key, round, procs); err != nil {
				return r, err
			}
		}
	}
	r.After, err = ReadMachine()
	return r, err
}

// takeTurns measures every rung once.
func takeTurns(ctx context.Context, r *Report, m measure, beds []*bed, round int) error {
	for _, b := range beds {
		v, err := m.take(ctx, b)
		if err != nil {
			return errors.Join(fmt.Errorf("%s of rung %s: %w", m.key, b.rung.Name, err), b.daemons())
		}
		r.Samples = append(r.Samples, Sample{m.key, b.rung.Name, round, v})
	}
	return nil
}
