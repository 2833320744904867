package loop_test

import (
	"context"
	"slices"
	"testing"

	"weft/lease/internal/inbox"
	"weft/lease/internal/loop"
)

// TestRun: what came before comes first, then begin. Once ctx has ended the core learns that before the
// answer that is due, which Run waits for.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	in := inbox.New(func(into *string, later string) { *into += later })
	in.Post("early")
	var got []string
	l := &loop.Loop[string, string]{
		In:   in,
		News: func(n string) string { return "news " + n },
		Stop: func(n string) string { return "stop " + n },
	}
	l.Step = func(e string) {
		if e != "news " { // the early Post has woken the loop too
			got = append(got, e)
		}
		switch e {
		case "begin":
			in.Post("late")
		case "news late":
			l.Ask(func(ctx context.Context) string { <-ctx.Done(); return "answer" })
			in.Note("last")
			cancel()
		}
	}
	l.Run(ctx, "begin")
	if want := []string{"news early", "begin", "news late", "stop last", "answer"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
