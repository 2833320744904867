package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/loglimit"
)

// output is where the log goes. Its level and its format can be changed while it is in use.
type output struct {
	level slog.LevelVar
	json  atomic.Bool
	limit *loglimit.Handler
}

// newLogger returns a logger that writes to w, and limits lines that say the same.
func newLogger(cfg options.Log, w io.Writer) (*slog.Logger, *output) {
	out := new(output)
	out.set(cfg)
	o := &slog.HandlerOptions{Level: &out.level}
	out.limit = loglimit.New(&eitherFormat{out: out, text: slog.NewTextHandler(w, o),
		json: slog.NewJSONHandler(w, o)})
	return slog.New(out.limit), out
}

// set changes level and format.
func (o *output) set(cfg options.Log) {
	level := slog.LevelInfo
	if cfg.Verbosity >= 1 {
		level = slog.LevelDebug
	}
	o.level.Set(level)
	o.json.Store(cfg.Format == "json")
}

// eitherFormat writes each line as text or as JSON, as out says at that moment.
type eitherFormat struct {
	out        *output
	text, json slog.Handler
}

func (e *eitherFormat) now() slog.Handler {
	if e.out.json.Load() {
		return e.json
	}
	return e.text
}

// Enabled implements slog.Handler.
func (e *eitherFormat) Enabled(ctx context.Context, l slog.Level) bool {
	return e.now().Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (e *eitherFormat) Handle(ctx context.Context, r slog.Record) error {
	return e.now().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (e *eitherFormat) WithAttrs(a []slog.Attr) slog.Handler {
	return &eitherFormat{out: e.out, text: e.text.WithAttrs(a), json: e.json.WithAttrs(a)}
}

// WithGroup implements slog.Handler.
func (e *eitherFormat) WithGroup(name string) slog.Handler {
	return &eitherFormat{out: e.out, text: e.text.WithGroup(name), json: e.json.WithGroup(name)}
}
