package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// ErrNotRunning is returned for a signal to a daemon that is not there.
var ErrNotRunning = errors.New("is not running")

// Daemon is a program that can be started again and again in one namespace, with its
// output appended to one file. Its methods may be called from any goroutine.
type Daemon struct {
	// Name is for messages.
	Name string
	// LogFile has both outputs of every start.
	LogFile string

	ns   *netns.Namespace
	path string
	args []string
	env  []string // besides this process's own
	nice int
	dir  string // where it is started; this process's if empty

	mu  sync.Mutex
	run *run // the latest, nil before the first start
}

// run is one life of a Daemon's process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after the process was waited for
	err  error         // of Wait; read after done
}

// NewDaemon is a program that is still to be started, in host. Its log's folder must exist.
func NewDaemon(host *Host, name, logFile, path string, args ...string) *Daemon {
	return &Daemon{Name: name, LogFile: logFile, ns: host.NS, path: path, args: append([]string(nil), args...)}
}

// Start starts the process and does not wait for what it does. It fails if it runs already.
func (d *Daemon) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.run != nil && d.run.alive() {
		return fmt.Errorf("%s runs already, pid %d", d.Name, d.run.cmd.Process.Pid)
	}
	log, err := os.OpenFile(d.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(d.path, d.args...)
	if d.nice != 0 { // nice(1) becomes the program, so that the process id is that of both
		cmd = exec.Command("nice", append([]string{"-n", strconv.Itoa(d.nice), d.path}, d.args...)...)
	}
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, d.dir
	if len(d.env) > 0 {
		cmd.Env = append(os.Environ(), d.env...)
	}
	if err := d.ns.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", d.Name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() { // waited for by whoever reads done; ends with the process
		r.err = cmd.Wait()
		close(r.done)
	}()
	d.run = r
	return nil
}

func (r *run) alive() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

func (d *Daemon) latest() *run {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run
}

// PID is the running process, or 0.
func (d *Daemon) PID() int {
	if r := d.latest(); r != nil && r.alive() {
		return r.cmd.Process.Pid
	}
	return 0
}

// Args are the arguments of the next start; the slice is a copy.
func (d *Daemon) Args() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.args...)
}

// SetArgs changes the arguments of the next start. It keeps a copy.
func (d *Daemon) SetArgs(args ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.args = append([]string(nil), args...)
}

// SetEnv says what the next start's environment has besides this process's own, as "NAME=value". It keeps a copy.
func (d *Daemon) SetEnv(env ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.env = append([]string(nil), env...)
}

// SetPath changes the program of the next start, as in an upgrade.
func (d *Daemon) SetPath(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.path = path
}

// Signal sends sig to the process: unix.SIGSTOP and SIGCONT pause and resume it.
func (d *Daemon) Signal(sig unix.Signal) error {
	r := d.latest()
	if r == nil || !r.alive() {
		return fmt.Errorf("%s %w", d.Name, ErrNotRunning)
	}
	if err := r.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s to %s: %w", sig, d.Name, err)
	}
	return nil
}

// Stop asks the process to end (SIGTERM) and waits for it. The error is not nil if its
// exit status is not 0, or if ctx ends first; the process is killed then.
func (d *Daemon) Stop(ctx context.Context) error {
	if err := d.Signal(unix.SIGTERM); err != nil {
		return err
	}
	r := d.latest()
	select {
	case <-r.done:
		if r.err != nil {
			return fmt.Errorf("%s, asked to stop: %w", d.Name, r.err)
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not stop: %w", d.Name, context.Cause(ctx)), d.Kill())
	}
}

// Kill ends the process as kill -9 does and waits until it is gone.
func (d *Daemon) Kill() error {
	if err := d.Signal(unix.SIGKILL); err != nil {
		return err
	}
	<-d.latest().done
	return nil
}

// Exited is closed when the process of the latest start has ended; nil before the first.
func (d *Daemon) Exited() <-chan struct{} {
	if r := d.latest(); r != nil {
		return r.done
	}
	return nil
}

// ExitError is the outcome of the latest start once Exited is closed: nil for status 0.
func (d *Daemon) ExitError() error {
	if r := d.latest(); r != nil && !r.alive() {
		return r.err
	}
	return nil
}

// LogTail is the last n lines of the log, at most 64 KiB of them.
func (d *Daemon) LogTail(n int) []byte {
	const most = 64 << 10
	f, err := os.Open(d.LogFile)
	if err != nil {
		return []byte(err.Error() + "\n")
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-most), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	lines := bytes.SplitAfter(bytes.TrimRight(text, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], nil)
}
