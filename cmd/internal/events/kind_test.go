package events

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"
)

// Every kind has a row in docs/events.md, in their order, and no row is of another.
func TestEveryKindIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(b), -1) {
		rows = append(rows, m[1])
	}
	if !slices.Equal(rows, Kinds()) {
		t.Errorf("docs/events.md has %q, want %q", rows, Kinds())
	}
	for _, s := range sayings() {
		if got := kindOf(sayings(), slog.LevelWarn, s.begins); got != s.kind {
			t.Errorf("%q is %s: another row before it takes it", s.begins, got)
		}
		if !slices.Contains(Kinds(), string(s.kind)) {
			t.Errorf("%s is not among the kinds", s.kind)
		}
	}
}
