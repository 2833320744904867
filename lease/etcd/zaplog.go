package etcd

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger returns the logger of etcd's client, which writes to log. Zap's levels become debug up to
// warnings and warn above: what etcd calls a warning (a slow disk, a client that
// went away) is not one for its user. A nil log discards everything.
func zapLogger(log *slog.Logger) *zap.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return zap.New(zapCore{log})
}

type zapCore struct{ log *slog.Logger }

func zapLevel(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled implements zapcore.LevelEnabler. Zap's debug and info records are many
// and are not even built unless they would be shown.
func (c zapCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), zapLevel(l))
}

// With implements zapcore.Core.
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{slog.New(c.log.Handler().WithAttrs(zapAttrs(fields)))}
}

// Check implements zapcore.Core.
func (c zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, zapLevel(e.Level), e.Message, 0)
	r.AddAttrs(zapAttrs(fields)...)
	return c.log.Handler().Handle(context.Background(), r)
}

// Sync implements zapcore.Core.
func (c zapCore) Sync() error { return nil }

func zapAttrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	out := make([]slog.Attr, 0, len(enc.Fields))
	for _, k := range slices.Sorted(maps.Keys(enc.Fields)) {
		out = append(out, slog.Any(k, enc.Fields[k]))
	}
	return out
}
