package events

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
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

// What the probes say begins with the names of peers, which those choose.
func TestWhatProbesSayHasAKind(t *testing.T) {
	for message, want := range map[string]Kind{
		"peer n1 no longer answers, the last time 23 s ago":    PeerUnanswering,
		"12 of 40 peers have not answered yet: n1, n2, …":      PeerUnanswering,
		"peer n1 (fd42::) answers":                             PeerUnanswering,
		"peer answers loses packets: 31 % of what is sent":     PeerLossy,
		"2 of 3 peers lose no packets any more: n1, n2":        PeerLossy,
		"peer n1 gets no large packets: those above 1300 byte": PeerLossy,
		"2 of 3 peers get large packets again: n1, n2":         PeerLossy,
		"peers are not asked: no socket":                       Fault,
	} {
		h := NewHandler(slog.DiscardHandler, NewLog(t.TempDir())).WithAttrs([]slog.Attr{slog.String("component", "probe")}).(*Handler)
		if e := h.event(slog.NewRecord(time.Time{}, slog.LevelWarn, message, 0)); e.Kind != want {
			t.Errorf("%q is %s, want %s", message, e.Kind, want)
		}
	}
}
