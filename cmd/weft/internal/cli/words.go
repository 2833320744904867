package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
)

// Clean replaces control characters by question marks, so that what others wrote into the store does not
// control the terminal.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

// OrDash is s without control characters, or "-" where there is nothing to say.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return Clean(s)
}

// Count returns "1 record" or "3 records".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Span prints the two largest units of a time that matter: 45s, 3m07s, 23h59m, 2d3h. Negative times print as
// 0s.
func Span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

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

// Total is how many packets were dropped, for any reason.
func Total(drops []control.Drop) (n uint64) {
	for _, d := range drops {
		n += d.Packets
	}
	return n
}

// YesNo prints a truth.
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

// Share prints a part of 1 as percent, nil as "-".
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

// Losses prints the loss of both directions together if that is what is known, else that out and that in.
func Losses(both, out, in *float64) string {
	switch {
	case both != nil:
		return Share(both) + " both"
	case out != nil || in != nil:
		return Share(out) + "/" + Share(in)
	}
	return "-"
}

// Passes prints the largest packet that passed, and whether larger ones are lost.
func Passes(mtu int, largeLost bool) string {
	switch {
	case mtu <= 0:
		return "-"
	case largeLost:
		return fmt.Sprintf("%d (larger lost)", mtu)
	}
	return fmt.Sprint(mtu)
}

// Packets prints how many there were, and their bytes.
func Packets(n, bytes uint64) string { return fmt.Sprintf("%d (%s)", n, Size(bytes)) }

// PrintFinding prints the fact, and below it the cause that was observed, or each that is not excluded.
func PrintFinding(w io.Writer, subject string, f diagnose.Finding) error {
	_, err := fmt.Fprintf(w, "\n%s: %s\n", Clean(subject), Clean(f.Fact))
	PrintOpen(w, "  ", f.Causes)
	return err
}

// PrintOpen prints each cause with the command that tells.
func PrintOpen(w io.Writer, margin string, causes []diagnose.Cause) {
	for _, c := range causes {
		word := "not excluded"
		if c.Observed {
			word = "cause"
		}
		fmt.Fprintf(w, "%s%s: %s\n%s  %s: %s\n", margin, word, Clean(c.Cause), margin, Clean(c.Where),
			Clean(c.Command))
	}
}
