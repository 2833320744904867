package cli

import (
	"strings"
	"testing"
)

// A cell may have what others wrote into the store: it moves neither the columns nor the terminal.
func TestTableCleansItsCells(t *testing.T) {
	var out strings.Builder
	l := NewList(&out, "NODE", "WHY")
	l.Row("a\tb\n", "\x1b[31mred")
	l.Row("c", 7)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "\nNODE  WHY\na?b?  ?[31mred\nc     7\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	if err := NewList(&out, "NODE").Flush(); err != nil || out.Len() > 0 {
		t.Errorf("a list without rows: %q, %v", out.String(), err)
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 999: "999B", 1000: "1.0KiB", 10 << 20: "10MiB",
		1<<64 - 1: "16EiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
