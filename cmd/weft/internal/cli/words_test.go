package cli

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		Clean("node-1 (ü)"):                         "node-1 (ü)",
		Clean("a\x1b[2Jb\nc\td\x7fe\u009bf\u0085g"): "a?[2Jb?c?d?e?f?g",
		OrDash(""):         "-",
		OrDash("x\r"):      "x?",
		Count(0, "record"): "0 records",
		Count(1, "record"): "1 record",
		Count(2, "peer"):   "2 peers",
		Span(-time.Hour):   "0s",
		Span(59*time.Second + 999*time.Millisecond): "59s",
		Span(3*time.Minute + 7*time.Second):         "3m07s",
		Span(24*time.Hour - time.Second):            "23h59m",
		Span(47 * time.Hour):                        "47h00m",
		Span(51 * time.Hour):                        "2d3h",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
