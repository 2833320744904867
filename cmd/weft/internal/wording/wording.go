// Package wording has how weft's commands write what they found, for tables and lines on a terminal. Its
// functions are pure, and safe for concurrent use.
package wording

import (
	"fmt"
	"strings"
	"time"
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
