package costs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Reference is the benchmark to which ratios are taken: the checksum of a large packet. Like the
// functions that are compared with it, it waits for neither memory nor the kernel.
const Reference = "weft/bench.BenchmarkLadder/rung=checksum/size=1472"

const (
	referencePackage = "weft/bench"
	referencePattern = "^BenchmarkLadder$/^rung=checksum$/^size=1472$"
	// These are left out: the kernel or Go's scheduler takes part in them, so they differ too much from run to run.
	skipped = "Overlay|/rung=(udp|loop)"
)

// Plan says what is measured.
type Plan struct {
	Packages []string
	// Rounds is how often each package's benchmarks are run. Each benchmark runs for Time in a round.
	Rounds int
	Time   time.Duration
}

// Measure runs every package's benchmarks, and the reference before each package. It takes the
// shortest time of all rounds, since other programs can only make it longer, and the largest
// number of allocations.
func Measure(ctx context.Context, p Plan) (map[string]Figure, error) {
	dir, err := os.MkdirTemp("", "weft-costs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	reference, err := build(ctx, dir, referencePackage)
	if err != nil {
		return nil, err
	}
	var bins []binary
	for _, pkg := range p.Packages {
		b, err := build(ctx, dir, pkg)
		if err != nil {
			return nil, err
		}
		bins = append(bins, b)
	}
	best := Run{}
	for range p.Rounds {
		for _, b := range bins {
			err := errors.Join(best.join(ctx, reference, referencePattern, p.Time), best.join(ctx, b, ".", p.Time))
			if err != nil {
				return nil, err
			}
		}
	}
	return best.figures()
}

// join runs a test program and adds what its benchmarks cost to r.
func (r Run) join(ctx context.Context, b binary, pattern string, last time.Duration) error {
	run, err := b.run(ctx, pattern, last)
	r.add(run)
	return err
}

// add keeps the better time and the worse allocations.
func (r Run) add(other Run) {
	for name, c := range other {
		if had, ok := r[name]; ok {
			c.Nanoseconds, c.Allocs = min(c.Nanoseconds, had.Nanoseconds), max(c.Allocs, had.Allocs)
		}
		r[name] = c
	}
}

func (r Run) figures() (map[string]Figure, error) {
	ref := r[Reference].Nanoseconds
	if ref == 0 {
		return nil, fmt.Errorf("there is no benchmark %s", Reference)
	}
	figures := map[string]Figure{}
	for name, c := range r {
		if name != Reference && c.Nanoseconds > 0 {
			figures[name] = Figure{c.Nanoseconds / ref, c.Allocs}
		}
	}
	return figures, nil
}

// binary is a package's test program, and the folder in which it runs.
type binary struct{ path, dir string }

func build(ctx context.Context, dir, pkg string) (b binary, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return b, fmt.Errorf("go list %s: %w", pkg, err)
	}
	b = binary{filepath.Join(dir, filepath.Base(pkg)+".test"), strings.TrimSpace(string(out))}
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.path, pkg).CombinedOutput(); err != nil {
		return b, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	return b, nil
}

func (b binary) run(ctx context.Context, pattern string, last time.Duration) (Run, error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.run=^$", "-test.bench="+pattern, "-test.skip="+skipped,
		"-test.benchmem", "-test.benchtime="+last.String())
	cmd.Dir = b.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s -test.bench=%s: %w\n%s", b.path, pattern, err, out)
	}
	return Parse(bytes.NewReader(out))
}
