package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"weft/cmd/weft/internal/wording"
)

// table aligns cells that are ended by tabs. Flush prints it.
type table struct {
	*tabwriter.Writer
	text    *bytes.Buffer
	out     io.Writer
	heading string
}

func newTable(w io.Writer) *table {
	var text bytes.Buffer
	return &table{Writer: tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0), text: &text, out: w}
}

// newList is a table that has its heading, below an empty line, only if it has rows.
func newList(w io.Writer, heading ...string) *table {
	t := newTable(w)
	t.heading = "\n" + strings.Join(heading, "\t") + "\n"
	return t
}

// row adds a line, without the control characters that a cell may have from the store.
func (t *table) row(cells ...any) {
	line := t.heading
	t.heading = ""
	for i, c := range cells {
		if i > 0 {
			line += "\t"
		}
		line += clean(fmt.Sprint(c))
	}
	_, _ = fmt.Fprintln(t, line) // it is kept in memory
}

// Flush prints the lines without the blanks that alignment leaves at their ends.
func (t *table) Flush() error {
	if err := t.Writer.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for line := range strings.Lines(t.text.String()) {
		if _, err := fmt.Fprintln(t.out, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// The words of package top too.
func count(n int, noun string) string { return wording.Count(n, noun) }
func duration(d time.Duration) string { return wording.Span(d) }
func orDash(s string) string          { return wording.OrDash(s) }
func clean(s string) string           { return wording.Clean(s) }

// ago says how long before now t was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return duration(now.Sub(t)) + " ago"
}

// size prints a byte count in powers of 1024: 999B, 1.2KiB, 34MiB.
func size(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%dB", n)
	}
	f := float64(n)
	unit := ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if f /= 1024; f < 1000 {
			break
		}
	}
	if f < 10 {
		return fmt.Sprintf("%.1f%s", f, unit)
	}
	return fmt.Sprintf("%.0f%s", f, unit)
}

// join prints what is set of several prefixes or addresses, or "-".
func join[T interface {
	IsValid() bool
	String() string
}](values ...T) string {
	var out []string
	for _, v := range values {
		if v.IsValid() {
			out = append(out, v.String())
		}
	}
	return orDash(strings.Join(out, ", "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// larger is the larger share; nil is none.
func larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

func share(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**f)
}

// milliseconds prints nanoseconds with two digits that matter.
func milliseconds(ns int64) string {
	ms := float64(ns) / 1e6
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2fms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}
