package cli

import (
	"context"
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

func (w *Watch) Run(ctx context.Context) error {
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
	answers := make(chan answer)
	wg.Go(func() { w.askOn(ctx, answers) })
	if out, ok := w.Stdout.(*os.File); ok && w.Print == nil && w.Times == 0 && inPlace(out) {
		return w.onScreen(ctx, out, answers)
	}
	return w.inBlocks(ctx, answers)
}

// inPlace reports whether out is a terminal in which lines may be written over. NO_COLOR asks for text and
// nothing else.
func inPlace(out *os.File) bool {
	return IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// inBlocks prints what is shown one after the other. The first answers, from which there are no rates, are
// not shown.
func (w *Watch) inBlocks(ctx context.Context, answers <-chan answer) error {
	for n := -w.Unshown; ; {
		if n++; n > 0 {
			if err := w.block(n == 1); err != nil {
				return err
			}
		}
		if w.Times > 0 && n >= w.Times {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			a.update()
		}
	}
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

// onScreen shows it in place until ctx ends or a key says so, and leaves the terminal as it was.
func (w *Watch) onScreen(ctx context.Context, out *os.File, answers <-chan answer) (err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	s, err := openScreen(out)
	if err != nil {
		return err
	}
	defer func() {
		if bad := s.restore(); err == nil {
			err = bad
		}
	}()
	keys := make(chan byte)
	wg.Go(func() { s.readKeys(ctx, keys) })
	for {
		if err := s.show(w.Draw(s.size())); err != nil {
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
