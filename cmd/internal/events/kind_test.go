package events

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/event"
	"weft/tunnel"
)

// Every kind that is declared is listed once, and docs/events.md has its sentence.
func TestEveryKindIsDocumented(t *testing.T) {
	read := func(file, pattern string, row func(m []string)) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)"+pattern).FindAllStringSubmatch(string(b), -1) {
			row(m)
		}
	}
	documented, declared := map[string]string{}, map[string]string{}
	read("../../../docs/events.md", "^\\| `([a-z_]+)` \\| (.+) \\|$", func(m []string) { documented[m[1]] = m[2] })
	for _, file := range []string{"kind.go", "../../../lease/events.go", "../../../tunnel/events.go", "../../../routing/event/event.go"} {
		read(file, `((?:^\t// .*\n)+)^\t\w+ .*Kind = "(\w+)"$`, func(m []string) {
			declared[m[2]] = strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(m[1], "\t// ", "")), "\n", " ")
		})
	}
	if got, want := slices.Sorted(slices.Values(Kinds())), slices.Sorted(maps.Keys(declared)); !slices.Equal(got, want) {
		t.Errorf("Kinds has %q, and declared are %q", got, want)
	}
	for _, k := range slices.Concat(Kinds(), slices.Collect(maps.Keys(documented))) {
		if documented[k] != declared[k] {
			t.Errorf("%s: docs/events.md says %q, and the code %q", k, documented[k], declared[k])
		}
	}
}

// A line's kind is its attribute event and nothing else, and it is not among the details too.
func TestALineSaysItsKind(t *testing.T) {
	for _, c := range []struct {
		level   slog.Level
		message string
		attr    slog.Attr
		want    Kind
		kept    bool // the attribute is a detail
	}{
		{slog.LevelInfo, "reworded", slog.Any("event", lease.EventAcquired), "lease_acquired", false},
		{slog.LevelWarn, "reworded", slog.Any("event", tunnel.EventPeerUnanswering), "peer_unanswering", false},
		{slog.LevelError, "reworded", slog.Any("event", event.UnderlayLost), "underlay_lost", false},
		{slog.LevelInfo, "reworded", slog.Any("event", Ready), "ready", false},
		{slog.LevelInfo, "ready", slog.String("link", "eth0"), Note, true},
		{slog.LevelWarn, "weftd starts", slog.Any("reason", errors.New("x")), Fault, true},
		{slog.LevelError, "lease acquired", slog.Int("n", 1), Fault, true},
		{slog.LevelWarn, "lease acquired", slog.String("event", "left_out"), Fault, true},
		{slog.LevelInfo, "lease acquired", slog.String("event", ""), Note, true},
		{slog.LevelInfo, "lease acquired", slog.String("kind", "peer_lossy"), Note, true},
	} {
		h := NewHandler(slog.DiscardHandler, NewLog(t.TempDir()))
		r := slog.NewRecord(time.Time{}, c.level, c.message, 0)
		with := h.WithAttrs([]slog.Attr{c.attr}).(*Handler).event(r)
		r.AddAttrs(c.attr)
		for _, e := range []Event{h.event(r), with} {
			if _, kept := e.Details[c.attr.Key]; e.Kind != c.want || kept != c.kept {
				t.Errorf("%v %q with %v is %s: %+v", c.level, c.message, c.attr, e.Kind, e)
			}
		}
	}
}
