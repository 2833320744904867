package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// ErrNotRunning is returned for a signal to a daemon that does not run.
var ErrNotRunning = errors.New("is not running")

// Daemon is a program that can be started again and again in one namespace. All that it prints is
// appended to one file. Its methods may be called from any goroutine.
type Daemon struct {
	// Name is for messages.
	Name string
	// LogFile gets the standard output and the standard error of every start.
	LogFile string

	ns   *netns.Namespace
	path string
	by   []string // what stands before path, and executes it
	args []string
	env  []string // besides this process's own
	nice int
	dir  string // its working directory; this process's if empty

	mu  sync.Mutex
	run *run // the latest, nil before the first start
}

// run is one process of a Daemon, from its start to its end.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after the process was waited for
	err  error         // that of Wait; to be read after done is closed
}

// NewDaemon makes a Daemon that will run in host, and does not start it. The folder of its log must exist.
func NewDaemon(host *Host, name, logFile, path string, args ...string) *Daemon {
	return &Daemon{Name: name, LogFile: logFile, ns: host.NS, path: path, args: append([]string(nil), args...)}
}

// Start starts the process and does not wait for what it does. It is an error if the process runs already.
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
	argv := append(append(slices.Clone(d.by), d.path), d.args...)
	if d.nice != 0 { // nice(1) replaces itself by the program, which so keeps its process id
		argv = append([]string{"nice", "-n", strconv.Itoa(d.nice)}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, d.dir
	if len(d.env) > 0 {
		cmd.Env = append(os.Environ(), d.env...)
	}
	if err := d.ns.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", d.Name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process, and then closes done
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

// PID is the id of the running process, or 0.
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

// SetEnv says what the next start's environment has besides this process's own, as "NAME=value". It keeps a
// copy.
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

// Stop asks the process to end (SIGTERM) and waits for it. If ctx ends first, Stop kills the process and
// returns an error. A status other than 0 is an error too.
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

// Exited returns a channel that is closed when the process of the latest start has ended. It is nil before
// the first start.
func (d *Daemon) Exited() <-chan struct{} {
	if r := d.latest(); r != nil {
		return r.done
	}
	return nil
}

// ExitError returns how the process of the latest start ended: nil for status 0. Before Exited is closed it
// is nil too.
func (d *Daemon) ExitError() error {
	if r := d.latest(); r != nil && !r.alive() {
		return r.err
	}
	return nil
}

// until calls ready until it returns nil. Its error says how the process ended, or what ready said before ctx
// ended.
func (d *Daemon) until(ctx context.Context, ready func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	reason := errors.New("never asked")
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			reason = err // the program's own, and not that our deadline has passed
		}
		select {
		case <-tick.C:
		case <-d.Exited():
			if err = d.ExitError(); err == nil {
				err = errors.New("exit status 0")
			}
			return fmt.Errorf("%s ended before it was ready: %w", d.Name, err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), reason)
		}
	}
}

// LogTail returns the last n lines of the log, but no more than the last 64 KiB.
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
