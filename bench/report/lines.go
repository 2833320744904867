package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteLines writes one round of a measure in the form of Go's benchmarks, which benchstat reads: a line for
// each rung that was measured in that round. procs is the GOMAXPROCS at the end of the names.
func (d *Document) WriteLines(w io.Writer, key string, round, procs int) error {
	m := d.Measure(key)
	if m == nil {
		return nil
	}
	for i := range m.Results {
		r := &m.Results[i]
		if _, ok := m.at(r, &r.Figures[0], round); !ok {
			continue
		}
		var line strings.Builder
		fmt.Fprintf(&line, "BenchmarkOverlay/%s/rung=%s-%d\t1", key, word(r.Rung), procs)
		for k := range r.Figures {
			if n, ok := m.at(r, &r.Figures[k], round); ok {
				fmt.Fprintf(&line, "\t%s %s", figure(n), r.Figures[k].Unit)
			}
		}
		if ratio, ok := d.ratio(m, r, round); ok {
			fmt.Fprintf(&line, "\t%.2f ratio-to-%s", ratio, word(d.Reference))
		}
		if _, err := fmt.Fprintln(w, line.String()); err != nil {
			return fmt.Errorf("write a benchmark line: %w", err)
		}
	}
	return nil
}

// word returns a name without the characters that end a part of a benchmark's name.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == '=' {
			return '_'
		}
		return r
	}, s)
}

// figure writes a number with about three significant digits.
func figure(n float64) string {
	switch {
	case n >= 100:
		return fmt.Sprintf("%.0f", n)
	case n >= 10:
		return fmt.Sprintf("%.1f", n)
	case n >= 1 || n == 0:
		return fmt.Sprintf("%.2f", n)
	}
	return fmt.Sprintf("%.3f", n)
}
