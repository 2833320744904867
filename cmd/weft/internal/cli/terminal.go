package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether w is one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// terminalSize is in columns and lines. A terminal that does not know its size is taken for one of 80 by 24.
func terminalSize(f *os.File) (width, height int) {
	s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || s.Col == 0 || s.Row == 0 {
		return 80, 24
	}
	return int(s.Col), int(s.Row)
}

// Columns is how wide w is, and whether it is a terminal.
func Columns(w io.Writer) (width int, terminal bool) {
	f, ok := w.(*os.File)
	if !ok || !IsTerminal(f) {
		return 0, false
	}
	width, _ = terminalSize(f)
	return width, true
}

// screen is a terminal in which lines are written over. The caller restores it.
type screen struct {
	out   *os.File
	saved *unix.Termios // of the standard input; nil if that is no terminal, and so has no keys
}

// Sequences for a terminal. The other screen keeps what the terminal showed before.
const (
	otherScreen  = "\x1b[?1049h\x1b[?25l"
	formerScreen = "\x1b[?25h\x1b[?1049l"
	home         = "\x1b[H"
	eraseLine    = "\x1b[2K"
	eraseBelow   = "\r\n\x1b[J"
	colourOff    = "\x1b[0m"
)

func openScreen(out *os.File) (*screen, error) {
	s := &screen{out: out}
	s.saved, _ = unix.IoctlGetTermios(unix.Stdin, unix.TCGETS)
	return s, s.enter()
}

// enter begins to use the terminal. Interrupts stay what they are, so that Ctrl-C ends weft as ever.
func (s *screen) enter() error {
	if s.saved != nil {
		raw := *s.saved
		raw.Lflag &^= unix.ICANON | unix.ECHO
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(unix.Stdin, unix.TCSETS, &raw); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
	}
	_, err := io.WriteString(s.out, otherScreen)
	return err
}

// restore makes the terminal as it was.
func (s *screen) restore() error {
	_, err := io.WriteString(s.out, colourOff+formerScreen)
	if s.saved != nil {
		err = errors.Join(err, unix.IoctlSetTermios(unix.Stdin, unix.TCSETS, s.saved))
	}
	return err
}

// suspend stops this process, as Ctrl-Z asks for, and returns when it goes on.
func (s *screen) suspend() error {
	if err := s.restore(); err != nil {
		return err
	}
	if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil {
		return err
	}
	return s.enter()
}

func (s *screen) size() (width, height int) { return terminalSize(s.out) }

// show writes lines over what is there, in one piece so that nothing flickers.
func (s *screen) show(lines []Line) error {
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(eraseLine + map[Kind]string{Heading: "\x1b[7m", Bad: "\x1b[31m"}[l.Kind] + l.Text)
		if l.Kind != Plain {
			b.WriteString(colourOff)
		}
	}
	if _, height := s.size(); len(lines) < height {
		b.WriteString(eraseBelow)
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

// readKeys tells of keys until ctx ends.
func (s *screen) readKeys(ctx context.Context, keys chan<- byte) {
	if s.saved == nil {
		return
	}
	tty, err := os.Open("/dev/tty") // a read of the standard input could not be ended
	if err != nil {
		return // without keys it works as well
	}
	defer func() { _ = tty.Close() }() // it was read from only
	defer context.AfterFunc(ctx, func() { _ = tty.Close() })()
	for {
		var k [16]byte // an arrow key is several bytes, which are none of ours
		n, err := tty.Read(k[:])
		if err != nil {
			return
		}
		if n != 1 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case keys <- k[0]:
		}
	}
}

// Line is a line of a screen, without control characters, and what it is.
type Line struct {
	Text string
	Kind Kind
}

// Kind is what a line is, for those who have colours.
type Kind uint8

// The kinds.
const (
	Plain   Kind = iota
	Heading      // of a table
	Bad          // something is wrong
)

// Cut shortens a text to a width, 0 for none, and shows that it did.
func Cut(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return strings.TrimRight(s, " ")
	}
	r := []rune(s)
	return strings.TrimRight(string(r[:width-1]), " ") + "…"
}
