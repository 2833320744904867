package benchcmd

import (
	"fmt"
	"io"

	"weft/bench/plan"
	"weft/cmd/weft/internal/cli"
)

// progressLine is one line on a terminal that is overwritten again and again. On anything else it prints
// nothing.
type progressLine struct {
	w     io.Writer // nil for none
	width int
	used  bool
}

func newProgressLine(w io.Writer, quiet bool) *progressLine {
	width, terminal := cli.Columns(w)
	if quiet || !terminal {
		return &progressLine{}
	}
	if width < 20 {
		width = 80
	}
	return &progressLine{w: w, width: width}
}

func (l *progressLine) progress(p plan.Progress) {
	l.say(fmt.Sprintf("%3.0f %%  %s left  %s", 100*p.Done, cli.Span(p.Left), p.What))
}

func (l *progressLine) say(text string) {
	if l.w == nil {
		return
	}
	r := []rune(cli.Clean(text))
	fmt.Fprintf(l.w, "\r\x1b[K%s", string(r[:min(len(r), l.width-1)]))
	l.used = true
}

// clear erases the line, so that something else can be printed.
func (l *progressLine) clear() {
	if l.used {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
