// Package loglimit keeps repeated messages from flooding the log. Of lines that say the same only a few pass
// at a time, and a later line says how many were left out.
package loglimit

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// burst is how many lines that say the same pass at once; then one passes each refill. Debug messages,
	// for which the operator has asked, have ten times as much.
	burst  = 20
	refill = 5 * time.Second
	// A message whose reasons differ each time, which a peer can cause, has messageBurst and messageRefill for
	// all of them together.
	messageBurst  = 100
	messageRefill = time.Second
	// sumUpAfter is how long after the first line that was left out the sum is logged.
	sumUpAfter = 10 * time.Second
	// maxKeys is how many different lines are told apart at a time; those beyond it share a bucket for each
	// level.
	maxKeys = 1024
)

// Handler is a slog.Handler that passes records on to another one, without those that flood. It is safe for
// concurrent use.
type Handler struct {
	next  slog.Handler
	about string // the component, and whatever error the logger itself carries
	*shared
}

// shared is the state of a Handler and all that With… made of it.
type shared struct {
	root slog.Handler // for sums

	mu   sync.Mutex // protects what follows
	keys map[key]*bucket
	sums *time.Timer // runs while something was left out
}

// key identifies lines that count as the same. of is "" for the message as a whole.
type key struct {
	level          slog.Level
	component, msg string
	of             string
}

// bucket lets lines pass, and counts those that it does not.
type bucket struct {
	*rate.Limiter
	used    time.Time
	left    int       // lines left out since the last sum
	since   time.Time // when the first of them came
	message string    // of the last one left out
}

// New returns a Handler that passes records on to next.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, shared: &shared{root: next, keys: map[key]*bucket{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), about: h.about, shared: h.shared}
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	about := h.about
	for _, a := range attrs {
		if a.Key == "component" {
			about = a.Value.String()
		}
	}
	return &Handler{next: h.next.WithAttrs(attrs), about: about, shared: h.shared}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.admit(r, time.Now()) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// admit decides whether r, which is logged at now, passes, and counts it if it does not.
func (h *Handler) admit(r slog.Record, now time.Time) bool {
	k := key{level: r.Level, component: h.about, msg: shape(r.Message)}
	times := 1
	if r.Level < slog.LevelInfo {
		times = 10
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all *bucket
	if why := reason(r); why != "" {
		all = h.bucket(k, now, messageBurst*times, messageRefill/time.Duration(times))
		// It is counted with the message, and not with its reason: whoever chooses reasons would choose the number
		// of sums.
		if all.TokensAt(now) < 1 {
			h.leaveOut(all, r.Message, now)
			return false
		}
		k.of = why
	}
	b := h.bucket(k, now, burst*times, refill/time.Duration(times))
	if !b.AllowN(now, 1) {
		h.leaveOut(b, r.Message, now)
		return false
	}
	if all != nil {
		all.AllowN(now, 1)
	}
	return true
}

// bucket returns k's bucket. If there are too many, the one that was used longest ago is deleted, if it is
// full again and has no sum that is not logged yet. Else k shares a bucket with all others of its level for
// which there is no room.
func (h *shared) bucket(k key, now time.Time, most int, every time.Duration) *bucket {
	if b := h.keys[k]; b != nil {
		b.used = now
		return b
	}
	rest := key{level: k.level}
	if len(h.keys) >= maxKeys && k != rest {
		var oldest key
		for o, b := range h.keys {
			if old := h.keys[oldest]; old == nil || b.used.Before(old.used) {
				oldest = o
			}
		}
		old := h.keys[oldest]
		if old.left > 0 || old.TokensAt(now) < float64(old.Burst()) {
			return h.bucket(rest, now, most, every)
		}
		delete(h.keys, oldest)
	}
	b := &bucket{Limiter: rate.NewLimiter(rate.Every(every), most), used: now}
	h.keys[k] = b
	return b
}

// leaveOut counts a line that does not pass b.
func (h *shared) leaveOut(b *bucket, message string, now time.Time) {
	if b.left == 0 {
		b.since = now
	}
	b.left++
	b.message = message
	if h.sums == nil {
		h.sums = time.AfterFunc(sumUpAfter, h.Flush)
	}
}

// Flush logs the sums of what was left out, if anything was.
func (h *shared) Flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sums != nil {
		h.sums.Stop()
		h.sums = nil
	}
	now := time.Now()
	var keys []key
	for k, b := range h.keys {
		if b.left > 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return h.keys[a].since.Compare(h.keys[b].since) })
	for _, k := range keys {
		h.sum(k, h.keys[k], now)
	}
}

// sum logs how many lines b left out.
func (h *shared) sum(k key, b *bucket, now time.Time) {
	if b.left == 0 {
		return
	}
	r := slog.NewRecord(now, k.level, "lines were left out", 0)
	r.AddAttrs(slog.Int("count", b.left), slog.String("like", b.message),
		slog.Duration("within", now.Sub(b.since)))
	if k.of != "" {
		r.AddAttrs(slog.String("because", k.of))
	}
	if k.component != "" {
		r.AddAttrs(slog.String("component", k.component))
	}
	b.left = 0
	_ = h.root.Handle(context.Background(), r) // slog ignores the error too: there is nowhere to report it
}

// reason returns the shape of the reason that r gives, so that errors that differ do not share a bucket.
func reason(r slog.Record) string {
	var out strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		v := a.Value.Resolve()
		_, isError := v.Any().(error)
		switch a.Key {
		case "reason", "error", "err", "detail", "because", "cause":
			isError = true
		}
		if isError {
			out.WriteString(a.Key + "=" + shape(v.String()) + " ")
		}
		return out.Len() < maxShape
	})
	return strings.TrimSuffix(out.String(), " ")
}

// maxShape bounds what is kept of a text, in bytes.
const maxShape = 200

// shape returns text without the parts that differ each time: numbers, and so addresses, times and random
// names.
func shape(text string) string {
	b := make([]byte, 0, min(len(text), maxShape))
	for i := 0; i < len(text) && len(b) < maxShape; i++ {
		c := text[i]
		if c >= '0' && c <= '9' {
			if len(b) == 0 || b[len(b)-1] != '#' {
				b = append(b, '#')
			}
			continue
		}
		b = append(b, c)
	}
	return strings.ToValidUTF8(string(b), "?")
}
