package costs

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figure is what a benchmark costs.
type Figure struct {
	Ratio  float64 // of its time to the reference's
	Allocs float64 // for each operation
}

// Baseline has the figures of benchmarks by name, and says on which machine they were measured.
type Baseline struct {
	Machine string
	Figures map[string]Figure
}

const machinePrefix = "# measured on: "

// ReadBaseline reads what Write writes.
func ReadBaseline(r io.Reader) (Baseline, error) {
	b := Baseline{Figures: map[string]Figure{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if m, ok := strings.CutPrefix(line, machinePrefix); ok {
			b.Machine = m
		}
		if line == "" || line[0] == '#' {
			continue
		}
		var name string
		var f Figure
		if _, err := fmt.Sscanf(line, "%s %f %f", &name, &f.Ratio, &f.Allocs); err != nil || f.Ratio <= 0 {
			return b, fmt.Errorf("line %d is %q, want: name, ratio, allocations", n, line)
		}
		b.Figures[name] = f
	}
	return b, lines.Err()
}

// Write writes a line for each benchmark, by name.
func (b Baseline) Write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "# Costs of hot functions as ratios to %s, and allocations an operation.\n"+
		"# Written by: make bench-guard UPDATE=1\n%s%s\n", Reference, machinePrefix, b.Machine); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.Figures)) {
		if _, err := fmt.Fprintf(w, "%s %.4g %g\n", name, b.Figures[name].Ratio, b.Figures[name].Allocs); err != nil {
			return err
		}
	}
	return nil
}

// Verdict is what a comparison found about one benchmark.
type Verdict uint8

// The verdicts. The last three are faults.
const (
	_ Verdict = iota
	Same
	Cheaper
	New // is not in the baseline
	Dearer
	Allocates // allocates more than it did
	Gone      // is in the baseline, and was not run
)

var verdictNames = [...]string{Same: "", Cheaper: "cheaper", New: "new", Dearer: "DEARER", Allocates: "ALLOCATES", Gone: "GONE"}

func (v Verdict) String() string {
	if v == 0 || int(v) >= len(verdictNames) {
		return fmt.Sprintf("verdict(%d)", uint8(v))
	}
	return verdictNames[v]
}

// Row is one benchmark's comparison.
type Row struct {
	Name     string
	Was, Now Figure
	Verdict  Verdict
}

// floor is by how much every ratio may grow, however small it is: a function of less than a nanosecond becomes dearer
// or cheaper with the alignment of a loop.
const floor = 0.02

// Compare compares figures with the baseline. A ratio may be larger by the share tolerance;
// there may not be more allocations. The rows are sorted by name, faults first.
func Compare(b Baseline, now map[string]Figure, tolerance float64) (rows []Row, faults int) {
	for name, was := range b.Figures {
		is, run := now[name]
		v := Same
		switch {
		case !run:
			v = Gone
		case is.Allocs > was.Allocs:
			v = Allocates
		case is.Ratio > was.Ratio*(1+tolerance)+floor:
			v = Dearer
		case is.Ratio < was.Ratio/(1+tolerance):
			v = Cheaper
		}
		rows = append(rows, Row{name, was, is, v})
	}
	for name, is := range now {
		if _, ok := b.Figures[name]; !ok {
			rows = append(rows, Row{name, Figure{}, is, New})
		}
	}
	for _, r := range rows {
		if r.Verdict >= Dearer {
			faults++
		}
	}
	slices.SortFunc(rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(y.Verdict, x.Verdict), cmp.Compare(x.Name, y.Name))
	})
	return rows, faults
}

// WriteTable writes rows in columns.
func WriteTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BENCHMARK\tBASELINE\tNOW\tCHANGE\tALLOCS\t")
	for _, r := range rows {
		change := "-"
		if r.Was.Ratio > 0 && r.Now.Ratio > 0 {
			change = fmt.Sprintf("%+.0f %%", 100*(r.Now.Ratio/r.Was.Ratio-1))
		}
		fmt.Fprintf(t, "%s\t%.3g\t%.3g\t%s\t%g\t%s\n", strings.TrimPrefix(r.Name, "weft/"), r.Was.Ratio, r.Now.Ratio, change, r.Now.Allocs, r.Verdict)
	}
	return t.Flush()
}
