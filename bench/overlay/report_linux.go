package overlay

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Sample is what one measure of one rung gave in one round.
type Sample struct {
	Measure, Rung string
	Round         int
	Values        []Value
}

// Report is all that was measured.
type Report struct {
	Samples       []Sample
	Before, After Machine
}

// ratio is the first value of s to that of the reference in the same round.
func (r Report) ratio(s Sample) (float64, bool) {
	for _, ref := range r.Samples {
		if ref.Measure == s.Measure && ref.Round == s.Round && ref.Rung == Reference && ref.Values[0].N > 0 {
			return s.Values[0].N / ref.Values[0].N, true
		}
	}
	return 0, false
}

// writeLines writes one round's samples of a measure in the form of Go's benchmarks, which
// benchstat reads. procs is the GOMAXPROCS of the name.
func (r Report) writeLines(w io.Writer, key string, round, procs int) error {
	for _, s := range r.Samples {
		if s.Measure != key || s.Round != round {
			continue
		}
		var line strings.Builder
		fmt.Fprintf(&line, "BenchmarkOverlay/%s/rung=%s-%d\t1", key, s.Rung, procs)
		for _, v := range s.Values {
			fmt.Fprintf(&line, "\t%s %s", figure(v.N), v.Unit)
		}
		if ratio, ok := r.ratio(s); ok {
			fmt.Fprintf(&line, "\t%.2f ratio-to-%s", ratio, Reference)
		}
		if _, err := fmt.Fprintln(w, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable sums the rounds up: for each measure and rung the median with the lowest and
// the highest, the ratio to the reference likewise, and the medians of what else was measured.
func (r Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "machine: %s\nbefore: %s\nafter: %s\n\n", r.Before.Name, r.Before.Load(), r.After.LoadSince(r.Before))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "MEASURE\tRUNG\tMEDIAN\tMIN–MAX\tRATIO TO %s\tMIN–MAX\tALSO\n", strings.ToUpper(Reference))
	measure := ""
	for _, g := range r.groups() {
		name := strings.TrimPrefix(g[0].Measure, "measure=")
		if name == measure {
			name = ""
		} else {
			measure = name
		}
		first := series(g, 0)
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s–%s\t", name, g[0].Rung, figure(median(first)), g[0].Values[0].Unit,
			figure(slices.Min(first)), figure(slices.Max(first)))
		if ratios := r.ratios(g); len(ratios) > 0 {
			fmt.Fprintf(t, "%.2f\t%.2f–%.2f\t", median(ratios), slices.Min(ratios), slices.Max(ratios))
		} else {
			fmt.Fprint(t, "-\t-\t")
		}
		for k := 1; k < len(g[0].Values); k++ {
			fmt.Fprintf(t, "%s %s  ", figure(median(series(g, k))), g[0].Values[k].Unit)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// groups are the samples by measure and rung, in the order of the first round.
func (r Report) groups() (groups [][]Sample) {
	at := map[[2]string]int{}
	for _, s := range r.Samples {
		key := [2]string{s.Measure, s.Rung}
		i, seen := at[key]
		if !seen {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	return groups
}

func (r Report) ratios(g []Sample) (l []float64) {
	for _, s := range g {
		if ratio, ok := r.ratio(s); ok {
			l = append(l, ratio)
		}
	}
	return l
}

// series is value k of every sample.
func series(g []Sample, k int) (l []float64) {
	for _, s := range g {
		l = append(l, s.Values[k].N)
	}
	return l
}

func median[T cmp.Ordered](l []T) T {
	s := slices.Sorted(slices.Values(l))
	return s[(len(s)-1)/2] // always one that was measured
}

// figure has three digits that count.
func figure(n float64) string {
	switch {
	case n >= 100:
		return fmt.Sprintf("%.0f", n)
	case n >= 10:
		return fmt.Sprintf("%.1f", n)
	case n >= 1:
		return fmt.Sprintf("%.2f", n)
	}
	return fmt.Sprintf("%.3f", n)
}
