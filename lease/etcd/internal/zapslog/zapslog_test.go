package zapslog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestLevelsAndFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level slog.Level
		want  string
	}{
		{slog.LevelInfo, "level=WARN msg=four a=x error=boom n=1\n"},
		{slog.LevelDebug, "level=DEBUG msg=one a=x\nlevel=DEBUG msg=two a=x\nlevel=DEBUG msg=three a=x\nlevel=WARN msg=four a=x error=boom n=1\n"},
	} {
		var out bytes.Buffer
		log := New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: c.level,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))).With(zap.String("a", "x"))
		log.Debug("one")
		log.Info("two")
		log.Warn("three")
		log.Error("four", zap.Int("n", 1), zap.Error(errors.New("boom")))
		if got := out.String(); got != c.want {
			t.Errorf("at %s:\n%s\nwant\n%s", c.level, got, strings.TrimSpace(c.want))
		}
	}
	New(nil).Error("nobody hears")
}
