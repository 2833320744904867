package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table aligns cells that are ended by tabs. Flush prints it.
type table struct {
	*tabwriter.Writer
	text *bytes.Buffer
	out  io.Writer
}

func newTable(w io.Writer) table {
	var text bytes.Buffer
	return table{tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0), &text, w}
}

// Flush prints the lines without the blanks that alignment leaves at their ends.
func (t table) Flush() error {
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

// count returns "1 record" or "3 records".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// duration prints the two largest units that matter: 23h59m, 2d3h, 45s.
func duration(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	switch d = d.Truncate(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// ago says how long before now t was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return duration(now.Sub(t)) + " ago"
}

// ends says when a lease ends.
func ends(expires time.Time, reservation bool, now time.Time) string {
	switch {
	case reservation:
		return "reserved"
	case expires.IsZero():
		return "-"
	case expires.Before(now):
		return "ended " + ago(expires, now)
	}
	return duration(expires.Sub(now))
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

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

// clean removes control characters, so that what others wrote into the store does not control the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
