package main

import (
	"strings"
	"testing"
)

// A cell may have what others wrote into the store: it moves neither the columns nor the terminal.
func TestTableCleansItsCells(t *testing.T) {
	var out strings.Builder
	l := newList(&out, "NODE", "WHY")
	l.row("a\tb\n", "\x1b[31mred")
	l.row("c", 7)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "\nNODE  WHY\na?b?  ?[31mred\nc     7\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	if err := newList(&out, "NODE").Flush(); err != nil || out.Len() > 0 {
		t.Errorf("a list without rows: %q, %v", out.String(), err)
	}
}
