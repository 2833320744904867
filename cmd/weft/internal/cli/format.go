package cli

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

func NewTable(w io.Writer) *table {
	var text bytes.Buffer
	return &table{Writer: tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0), text: &text, out: w}
}

// NewList is a table that has its heading, below an empty line, only if it has rows.
func NewList(w io.Writer, heading ...string) *table {
	t := NewTable(w)
	t.heading = "\n" + strings.Join(heading, "\t") + "\n"
	return t
}

// Row adds a line, without the control characters that a cell may have from the store.
func (t *table) Row(cells ...any) {
	line := t.heading
	t.heading = ""
	for i, c := range cells {
		if i > 0 {
			line += "\t"
		}
		line += Clean(fmt.Sprint(c))
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
func Count(n int, noun string) string { return wording.Count(n, noun) }
func Span(d time.Duration) string     { return wording.Span(d) }
func OrDash(s string) string          { return wording.OrDash(s) }
func Clean(s string) string           { return wording.Clean(s) }

// Ago says how long before now t was.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return Span(now.Sub(t)) + " ago"
}

// Size prints a byte count in powers of 1024: 999B, 1.2KiB, 34MiB.
func Size(n uint64) string {
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

// Join prints what is set of several prefixes or addresses, or "-".
func Join[T interface {
	IsValid() bool
	String() string
}](values ...T) string {
	var out []string
	for _, v := range values {
		if v.IsValid() {
			out = append(out, v.String())
		}
	}
	return OrDash(strings.Join(out, ", "))
}

func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Larger is the larger share; nil is none.
func Larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

func Share(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**f)
}

// Milliseconds prints nanoseconds with two digits that matter.
func Milliseconds(ns int64) string {
	ms := float64(ns) / 1e6
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2fms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}
