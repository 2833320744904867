package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/top"
	"weft/test/await"
)

// serveAt serves n on a socket until the returned function is called.
func serveAt(t *testing.T, socket string, n services) (stop func()) {
	t.Helper()
	l, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, l, serverOf(n)) }() // waited for by stop
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// In a pipe there is a block of plain text an interval, and with --json a document a line.
func TestTopInAPipe(t *testing.T) {
	socket := start(t, &node{})
	asked := func(args ...string) string {
		out, stderr, err := weft(t, append(args, "--control-socket="+socket, "--interval=100ms")...)
		if err != nil || stderr != "" || strings.Contains(out, "\x1b") {
			t.Fatalf("%v: %v %s\n%q", args, err, stderr, out)
		}
		return out
	}
	once := asked("top", "--once")
	if strings.Count(once, "PEER ") != 1 || !strings.HasPrefix(once, "db1  ready") ||
		!strings.Contains(once, "bit/s") || !strings.Contains(once, "\nweb.example ") {
		t.Error(once)
	}
	if two := asked("top", "-n", "2", "b"); strings.Count(two, "PEER ") != 2 ||
		strings.Contains(two, "web.example") {
		t.Error(two)
	}
	d := json.NewDecoder(strings.NewReader(asked("top", "--json", "-n", "2")))
	d.DisallowUnknownFields()
	for range 2 {
		var v struct {
			versioned
			top.Picture
		}
		if err := d.Decode(&v); err != nil || v.SchemaVersion != 1 || v.Seconds <= 0 || v.In == nil ||
			len(v.Peers) != 3 || v.Peers[0].Out == nil || v.Peers[2].Out != nil {
			t.Errorf("%v %+v", err, v)
		}
	}
	if d.More() {
		t.Error("there are more than two lines")
	}
}

// TestWatchFollowsADaemonThatComesBack has one that goes away between two looks and comes back.
func TestWatchFollowsADaemonThatComesBack(t *testing.T) {
	socket := t.TempDir() + "/weftd.sock"
	for _, args := range []string{"top", "peers --watch", "status --watch"} {
		stop := serveAt(t, socket, &node{})
		ctx, cancel := context.WithCancel(t.Context())
		var out lockedBuffer
		done := make(chan error, 1)
		go func() { // waited for below
			done <- run(ctx, append(strings.Fields(args), "--interval=100ms", "--control-socket="+socket), &out, &out)
		}()
		says := func(text string) {
			t.Helper()
			await.OK(t, args+" says "+text, func() error {
				if !strings.Contains(out.String(), text) {
					return fmt.Errorf("%q", out.String())
				}
				return nil
			})
			out.Reset()
		}
		says("db1")
		stop()
		says("NO ANSWER")
		stop = serveAt(t, socket, &node{})
		says(map[string]string{"status --watch": "ready"}[args])
		await.True(t, "no fault", func() bool {
			out.Reset()
			await.True(t, "a block", func() bool { return strings.Contains(out.String(), "\n\n") })
			return !strings.Contains(out.String(), "NO ANSWER")
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", args, err)
		}
		stop()
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// A line of --watch --json is the document of --json with its time.
func TestWatchedDocuments(t *testing.T) {
	socket := start(t, &node{})
	for args, field := range map[string]string{"peers": "peers", "status": "uptimeSeconds"} {
		ctx, cancel := context.WithCancel(t.Context())
		var out lockedBuffer
		done := make(chan error, 1)
		go func() { // waited for below
			done <- run(ctx, []string{args, "--watch", "--json", "--interval=100ms", "--control-socket=" + socket},
				&out, &out)
		}()
		await.True(t, "two lines", func() bool { return strings.Count(out.String(), "\n") >= 2 })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(out.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil || m["schema_version"] != 1.0 || m["time"] == nil ||
				m[field] == nil {
				t.Errorf("%s: %v: %s", args, err, line)
			}
		}
	}
}

func TestTopRefuses(t *testing.T) {
	for _, args := range []string{"top --sort size", "top --interval 1ms", "top -n -1", "peers --interval 2s",
		"status --watch --wait"} {
		if _, _, err := weft(t, strings.Fields(args)...); !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, _, err := weft(t, "top", "--once", "--control-socket", t.TempDir()+"/none"); err == nil ||
		!strings.Contains(err.Error(), "answer") {
		t.Errorf("got %v", err)
	}
}

// pty is a terminal of the test's own with weft in it.
type pty struct {
	master, slave *os.File
	before        unix.Termios
	cmd           *exec.Cmd
	out           lockedBuffer
	read          sync.WaitGroup
}

func inTerminal(t *testing.T, width, height uint16, environment string, args ...string) *pty {
	t.Helper()
	p := &pty{}
	var err error
	if p.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(p.master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	p.resize(t, width, height)
	before, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	p.before = *before
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), asCommand+"=1", "TERM=xterm", environment)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.read.Go(func() {
		for b := make([]byte, 4096); ; {
			n, err := unix.Read(int(p.master.Fd()), b)
			if n <= 0 || err != nil {
				return
			}
			_, _ = p.out.Write(b[:n])
		}
	})
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.slave.Close()
		p.read.Wait()
		_ = p.master.Close()
	})
	return p
}

func (p *pty) resize(t *testing.T, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
}

func (p *pty) shows(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		await.OK(t, text, func() error {
			if !strings.Contains(p.out.String(), text) {
				out := p.out.String()
				return fmt.Errorf("%q", out[max(0, len(out)-2000):])
			}
			return nil
		})
	}
}

// TestTopInATerminal ends it in each way, and finds the terminal as it was.
func TestTopInATerminal(t *testing.T) {
	socket := start(t, &node{})
	for _, end := range []string{"q", "\x03", "TERM"} { // Ctrl-C is an interrupt, as ever
		p := inTerminal(t, 130, 20, "NO_COLOR=", "top", "--interval=100ms", "--control-socket="+socket)
		p.shows(t, "\x1b[?1049h", "\x1b[7mPEER ", "ANSWERS", "by traffic")
		if _, err := p.master.WriteString("s"); err != nil {
			t.Fatal(err)
		}
		p.shows(t, "by out")
		p.out.Reset()
		p.resize(t, 40, 10)
		p.shows(t, " LOSS OUT b/s IN b/s\x1b[0m\r")
		var err error
		if end == "TERM" {
			err = p.cmd.Process.Signal(unix.SIGTERM)
		} else {
			_, err = p.master.WriteString(end)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%q: %v", end, err)
		}
		p.shows(t, "\x1b[?25h\x1b[?1049l")
		if now, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS); err != nil || *now != p.before ||
			now.Lflag&unix.ECHO == 0 {
			t.Errorf("%q: %v: the terminal is %+v, was %+v", end, err, now, p.before)
		}
	}
}

// Whoever wants no colours gets text, in blocks that fit the terminal.
func TestTopWithoutColour(t *testing.T) {
	p := inTerminal(t, 40, 10, "NO_COLOR=1", "top", "--interval=100ms", "-n2", "--control-socket="+
		start(t, &node{}))
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	await.True(t, "two blocks", func() bool { return strings.Count(p.out.String(), "PEER ") == 2 })
	if out := p.out.String(); strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	for line := range strings.Lines(p.out.String()) {
		if len([]rune(strings.TrimRight(line, "\r\n"))) > 40 {
			t.Errorf("%q leaves the terminal", line)
		}
	}
}
