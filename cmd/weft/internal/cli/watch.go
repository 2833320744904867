package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Watch shows something again and again: in place in a terminal, else as one block of text, or one line of
// JSON, an interval.
type Watch struct {
	Every time.Duration
	// Times is after how many it ends; 0 is never. Unshown is how many answers at the start are shown in a
	// terminal only.
	Times, Unshown int
	Stdout         io.Writer
	// Ask gets what is shown next; the loop calls update before it shows that. An error of the first ends the
	// watching, as does one that no waiting mends; others are shown.
	Ask func(ctx context.Context) (update func(), err error)
	// Draw lays it out, in at most so many columns and lines; 0 is without end.
	Draw func(width, height int) []Line
	// Print, unless it is nil, takes the place of Draw.
	Print func(w io.Writer) error
	// Key, unless it is nil, is told of each key but q, which ends the watching.
	Key func(k byte)
}

// watchLeast is the shortest interval: weftd answers from memory, but it has other things to do.
const watchLeast = 100 * time.Millisecond

// Run shows it until ctx ends, a key says so, or it has been shown Times times. It leaves a terminal as it was.
func (w *Watch) Run(ctx context.Context) (err error) {
	if w.Every < watchLeast {
		return Usagef("--interval %s: want %s or more", w.Every, watchLeast)
	}
	update, err := w.Ask(ctx)
	if err != nil {
		return err
	}
	update()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	answers, keys, signals := make(chan answer), make(chan byte), make(chan os.Signal, 4)
	wg.Go(func() { w.askOn(ctx, answers) })
	var s *screen // nil for one block after the other
	if out, ok := w.Stdout.(*os.File); ok && w.Print == nil && w.Times == 0 && inPlace(out) {
		signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGHUP)
		defer signal.Stop(signals)
		if s, err = openScreen(out); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.restore()) }()
		wg.Go(func() { s.readKeys(ctx, keys) })
	}
	for n := -w.Unshown; ; { // the first blocks, for which there are no rates, are not shown
		if s != nil {
			err = s.show(w.Draw(s.size()))
		} else if n++; n > 0 {
			err = w.block(n == 1)
		}
		if err != nil || s == nil && w.Times > 0 && n >= w.Times {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case k := <-keys:
			if k == 'q' {
				return nil
			}
			if w.Key != nil {
				w.Key(k)
			}
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			a.update()
		case got := <-signals:
			switch got {
			case syscall.SIGHUP: // the terminal is gone
				return nil
			case syscall.SIGTSTP: // back to the shell, and later here again
				if err := s.suspend(); err != nil {
					return err
				}
			}
		}
	}
}

// inPlace reports whether out is a terminal in which lines may be written over. NO_COLOR asks for text and
// nothing else.
func inPlace(out *os.File) bool {
	return IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (w *Watch) block(first bool) error {
	if w.Print != nil {
		return w.Print(w.Stdout)
	}
	width, _ := Columns(w.Stdout)
	var b strings.Builder
	if !first {
		b.WriteByte('\n')
	}
	for _, l := range w.Draw(width, 0) {
		b.WriteString(l.Text + "\n")
	}
	_, err := io.WriteString(w.Stdout, b.String())
	return err
}

// answer is what ask returned.
type answer struct {
	update func()
	err    error
}

// askOn asks at each interval until ctx ends. An answer that takes longer delays the next question.
func (w *Watch) askOn(ctx context.Context, answers chan<- answer) {
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var a answer
		if a.update, a.err = w.Ask(ctx); ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case answers <- a:
		}
	}
}

// LinesOf are those of a page, cut to a width.
func LinesOf(width int, page func(w io.Writer) error) []Line {
	var b strings.Builder
	if err := page(&b); err != nil {
		fmt.Fprintln(&b, err)
	}
	var out []Line
	for l := range strings.Lines(b.String()) {
		out = append(out, Line{Text: Cut(strings.TrimRight(l, "\n"), width)})
	}
	return out
}
