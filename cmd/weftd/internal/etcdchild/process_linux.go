// Package etcdchild runs the embedded etcd: the program weft-etcd, as a process that ends when this one does.
package etcdchild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"weft/lease/etcd/embedded"
)

// Find returns the path of weft-etcd: beside this program, else in $PATH.
func Find() (string, error) {
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), embedded.Program)); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(embedded.Program)
	if err != nil {
		return "", fmt.Errorf("--embedded-etcd takes the program %s, which comes with weftd, and it is neither "+
			"beside weftd nor in $PATH: put it there: %w", embedded.Program, err)
	}
	return path, nil
}

// Process is a weft-etcd that served. Its methods are safe for concurrent use.
type Process struct {
	dir       string
	cmd       *exec.Cmd
	lifeline  io.Closer // it reads the other end, and ends with that
	endpoints []string
	ended     chan struct{}
	err       error // why it ended; may be read once ended is closed
}

// Start runs program and returns when etcd serves c's clients. It gives up when ctx ends, which has no effect
// later. etcd logs to this process's standard error: its errors, or all if c.Logger has debug messages. The
// caller closes the Process; if this process dies without that, the kernel kills the child.
func Start(ctx context.Context, program string, c embedded.Config) (*Process, error) {
	p := &Process{dir: c.Dir, ended: make(chan struct{})}
	p.cmd = exec.Command(program, c.Args(c.Logger.Enabled(ctx, slog.LevelDebug))...)
	p.cmd.Env = environment(os.Environ())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = os.Stderr
	lifeline, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	p.lifeline = lifeline
	reports, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded etcd: %w", err), lifeline.Close())
	}
	started, serves := make(chan error), make(chan []string, 1)
	go p.run(reports, started, serves)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	select {
	case p.endpoints = <-serves:
		return p, nil
	case <-p.ended:
		return nil, p.err
	case <-ctx.Done():
		p.Close()
		return nil, context.Cause(ctx)
	}
}

// run starts the process and waits until it ends. It keeps its thread, since the kernel kills the child when
// the thread that started it ends.
func (p *Process) run(reports io.Reader, started chan<- error, serves chan<- []string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	said := ""
	for d := json.NewDecoder(reports); ; {
		var r embedded.Report
		if d.Decode(&r) != nil {
			break
		}
		if said = r.Error; r.Endpoints != nil {
			serves <- r.Endpoints
		}
	}
	_, _ = io.Copy(io.Discard, reports)
	_ = p.cmd.Wait() // ProcessState says it
	if p.err = errors.New(said); said == "" {
		p.err = fmt.Errorf("embedded etcd in %s: its process ended: %s", p.dir, p.cmd.ProcessState)
	}
	close(p.ended)
}

// Endpoints returns the URL for clients on this host.
func (p *Process) Endpoints() []string { return p.endpoints }

// Wait blocks until the process ends and returns why, or until ctx ends: then it returns nil.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return nil
	}
}

// Close ends the process, and returns when it is gone. Writes that etcd acknowledged are on disk.
func (p *Process) Close() {
	_ = p.lifeline.Close()
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.ended
}

// environment returns the variables that the process gets: those that Go's runtime and library read. The
// others are weftd's settings, of which some are secret, and the service manager's sockets.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !strings.HasPrefix(name, "GO") && !strings.HasPrefix(name, "SSL_CERT_") && name != "TZ" &&
			name != "TMPDIR"
	})
}
