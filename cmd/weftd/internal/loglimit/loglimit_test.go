package loglimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logger writes to the buffer without times.
func logger() (*slog.Logger, *bytes.Buffer, *Handler) {
	var out bytes.Buffer
	h := New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	return slog.New(h), &out, h
}

func count(out *bytes.Buffer, text string) int { return strings.Count(out.String(), text) }

// leftOut adds up what the sums say.
func leftOut(t *testing.T, out *bytes.Buffer) (n int) {
	t.Helper()
	for line := range strings.Lines(out.String()) {
		if _, rest, ok := strings.Cut(line, `msg="lines were left out" count=`); ok {
			c, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			n += c
		}
	}
	return n
}

// Of an hour of each flood that was ever seen a few lines pass, all others are counted, and no other line is
// lost.
func TestFloods(t *testing.T) {
	for name, tt := range map[string]struct {
		line func(log *slog.Logger, i int)
		of   string
	}{
		"ICMP from 1,000 peers": {func(log *slog.Logger, i int) {
			log.Info("path MTU lowered", "peer", fmt.Sprint("node-", i%1000), "mtu", 576+i%900)
		}, "msg=\"path MTU lowered\""},
		"a full disk with random names": {func(log *slog.Logger, i int) {
			log.Error("not written", "reason", fmt.Sprintf("open /run/.subnet.env.%d: no space left on device",
				i*7919))
		}, "msg=\"not written\""},
		"an error as a value": {func(log *slog.Logger, i int) {
			log.Warn("no answer", "error", fmt.Errorf("dial 10.0.%d.%d:2379: %w", i%256, i%7, errors.New("refused")))
		}, "msg=\"no answer\""},
		"a text that others choose": {func(log *slog.Logger, i int) {
			log.Warn("a record is not believed", "reason", strings.Repeat("x", i%5000))
		}, "msg=\"a record is not believed\""},
		"a logger with a component": {func(log *slog.Logger, i int) {
			log.With("component", "backend").WithGroup("g").Warn("no", "n", i)
		}, "msg=no "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, out, h := logger()
				const lines, every = 36_000, 100 * time.Millisecond
				for i := range lines {
					tt.line(log, i)
					if i == lines/2 {
						log.Warn("something else", "reason", "another")
					}
					time.Sleep(every)
				}
				h.Flush()
				passed := count(out, tt.of)
				// 3,600 s at one a second, for a message whose reasons others choose; else one in 5 s.
				most := burst + int(lines*every/refill) + 1
				if name == "a text that others choose" {
					most = messageBurst + int(lines*every/messageRefill) + 1
				}
				if passed > most || passed < burst {
					t.Errorf("%d lines passed, want at most %d", passed, most)
				}
				if n := leftOut(t, out); passed+n != lines {
					t.Errorf("%d passed and %d are said to be left out of %d", passed, n, lines)
				}
				if count(out, "something else") != 1 {
					t.Error("another line starved")
				}
				if len(h.keys) > maxKeys {
					t.Errorf("%d keys are kept", len(h.keys))
				}
			})
		})
	}
}

// However many reasons somebody makes up, the log grows by a bounded number of lines, sums included, and all
// are counted.
func TestReasonsMadeUpAreCounted(t *testing.T) {
	const lines, every = 20 * maxKeys, 2 * time.Millisecond
	const took = lines * every
	for name, tt := range map[string]struct {
		line func(log *slog.Logger, made string)
		most int
	}{
		"of one message": {func(log *slog.Logger, made string) {
			log.Warn("a record is not believed", "key", made, "reason", "malformed", "detail", "no subnet in "+made)
		}, messageBurst + int(took/messageRefill) + 1},
		"as messages": {func(log *slog.Logger, made string) { log.Warn(made + " does not answer") },
			maxKeys*int(took/refill+1) + burst},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, out, h := logger()
				for i := range lines {
					// numbers are no part of a shape
					tt.line(log, strings.Map(func(c rune) rune { return c - '0' + 'a' }, strconv.Itoa(i)))
					time.Sleep(every)
				}
				h.Flush()
				sums := count(out, "were")
				passed := count(out, "\n") - sums
				if passed > tt.most || passed < messageBurst {
					t.Errorf("%d lines passed, want at most %d", passed, tt.most)
				}
				if sums > int(took/sumUpAfter)+1 {
					t.Errorf("%d sums in %v", sums, took)
				}
				if n := leftOut(t, out); passed+n != lines {
					t.Errorf("%d passed and %d are said to be left out of %d", passed, n, lines)
				}
				if len(h.keys) > maxKeys+1 {
					t.Errorf("%d keys are kept", len(h.keys))
				}
			})
		})
	}
}

// Two errors under one message do not share a bucket, nor do levels and components.
func TestErrorsThatDifferDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, h := logger()
		for range 10 * burst {
			log.Warn("not in place", "reason", "route 10.0.0.0/24: busy")
		}
		log.Warn("not in place", "reason", "device: no such file")
		log.Error("not in place", "reason", "route 10.0.0.0/24: busy")
		log.With("component", "rules").Warn("not in place", "reason", "route 10.0.0.0/24: busy")
		h.Flush()
		for text, want := range map[string]int{"such": 1, "level=ERROR": 1, "reason=\"route": burst + 2} {
			if n := count(out, text); n != want {
				t.Errorf("%q %d times, want %d:\n%s", text, n, want, out)
			}
		}
	})
}

// The sum of what was left out is logged soon, also if nothing else is ever logged.
func TestTheSumIsSaidByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, _ := logger()
		for range burst + 7 {
			log.With("component", "x").Warn("again")
		}
		time.Sleep(sumUpAfter)
		synctest.Wait()
		if !strings.Contains(out.String(), "component=x") {
			t.Errorf("got\n%s", out)
		}
		before := out.Len()
		time.Sleep(time.Hour)
		synctest.Wait()
		if out.Len() != before {
			t.Errorf("and then:\n%s", out.String()[before:])
		}
		for range burst {
			log.With("component", "x").Warn("again")
		}
		if n := count(out, "msg=again"); n != 2*burst {
			t.Errorf("%d lines after an hour of silence, want %d", n, 2*burst)
		}
	})
}

func TestDebugIsAskedForAndBoundedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, h := logger()
		for range 100 * burst {
			log.Debug("detail")
		}
		h.Flush()
		if n := count(out, "msg=detail"); n != 10*burst || !h.Enabled(context.Background(), slog.LevelDebug) {
			t.Errorf("%d lines", n)
		}
	})
}

func BenchmarkALineThatIsLeftOut(b *testing.B) {
	log := slog.New(New(slog.DiscardHandler))
	for b.Loop() {
		log.Info("path MTU lowered", "peer", "a", "mtu", 1400)
	}
}
