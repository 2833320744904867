package events

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/event"
	"weft/tunnel/port"
)

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
		{slog.LevelWarn, "reworded", slog.Any("event", port.EventPeerUnanswering), "peer_unanswering", false},
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
