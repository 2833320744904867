package events

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
)

// Handler is a slog.Handler that also adds what is logged to a Log, except for debug messages. It is safe for
// concurrent use.
type Handler struct {
	next  slog.Handler
	log   *Log
	kinds []string
	with  []slog.Attr
}

// NewHandler returns a Handler that passes everything on to next.
func NewHandler(next slog.Handler, log *Log) *Handler {
	return &Handler{next: next, log: log, kinds: Kinds()}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithGroup implements slog.Handler. Details have no groups.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.log, h.kinds, h.with}
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.next.WithAttrs(attrs), h.log, h.kinds, slices.Concat(h.with, attrs)}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.log.Add(h.event(r))
	}
	return h.next.Handle(ctx, r)
}

func (h *Handler) event(r slog.Record) Event {
	e := Event{Kind: Note, Level: "info", Message: r.Message}
	switch {
	case r.Level >= slog.LevelError:
		e.Kind, e.Level = Fault, "error"
	case r.Level >= slog.LevelWarn:
		e.Kind, e.Level = Fault, "warning"
	}
	detail := func(a slog.Attr) bool {
		v := text(a.Value)
		if a.Key == "event" && slices.Contains(h.kinds, v) {
			e.Kind = Kind(v)
		} else if len(e.Details) < maxDetails {
			if e.Details == nil {
				e.Details = map[string]string{}
			}
			e.Details[a.Key] = v
		}
		return true
	}
	for _, a := range h.with {
		detail(a)
	}
	r.Attrs(detail)
	return e
}

// text is a value as people read it.
func text(v slog.Value) string {
	v = v.Resolve()
	if v.Kind() != slog.KindAny {
		return v.String()
	}
	return fmt.Sprint(v.Any())
}
