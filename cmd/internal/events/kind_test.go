package events

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"weft/routing/probe"
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

// What the probes say begins with the names of peers, which those choose: the line says its kind itself.
func TestWhatProbesSayHasAKind(t *testing.T) {
	for _, c := range []struct {
		component, kind, message string
		want                     Kind
	}{
		{"probe", probe.KindAnswers, "peer n1 no longer answers, the last time 23 s ago", PeerUnanswering},
		{"probe", probe.KindAnswers, "peer waiting loses answers", PeerUnanswering},
		{"probe", probe.KindLoss, "peer no longer answers loses packets: 31 % of what is sent", PeerLossy},
		{"probe", "", "peers are not asked: no socket", Fault},
		{"probe", "stopped", "peer n1 answers", Fault},
		{"lease", probe.KindLoss, "nothing of probes", Fault},
	} {
		h := NewHandler(slog.DiscardHandler, NewLog(t.TempDir())).WithAttrs([]slog.Attr{slog.String("component", c.component)}).(*Handler)
		r := slog.NewRecord(time.Time{}, slog.LevelWarn, c.message, 0)
		r.AddAttrs(slog.String("kind", c.kind))
		if e := h.event(r); e.Kind != c.want || e.Details["kind"] != "" && e.Kind != Fault {
			t.Errorf("%+v is %s: %+v", c, e.Kind, e)
		}
	}
}
