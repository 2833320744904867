// Package etcdtest runs a real etcd, Debian's binary, for tests: it can be killed,
// paused, compacted, wiped and put back to an earlier state.
package etcdtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"weft/test/netns"
	"weft/test/ports"
)

// Options are for StartWith; the zero value is that of Start.
type Options struct {
	// Listen is the address of the client port; the zero Addr is 127.0.0.1.
	Listen netip.Addr
	// Port of the client; zero chooses a free one of this process's network namespace.
	Port int
	// Wrap is put before the command, such as ip netns exec NAME.
	Wrap []string
	// Args are further flags. With --cert-file among them the endpoint is https.
	Args []string
}

// Server is one etcd with one member. Its methods are for the test's goroutine.
type Server struct {
	t    testing.TB
	opts Options
	dir  string // of the data
	url  string
	peer string
	// generation goes into the cluster token, so that a wiped store has another cluster id.
	generation int
	proc       *process
}

// process is a running etcd and the goroutine that waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  *logBuffer
}

// Start runs an etcd on ports of 127.0.0.1 until the test ends. They are the test's own also while it does
// not run.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, Options{})
}

// StartWith is Start with options.
func StartWith(t testing.TB, o Options) *Server {
	t.Helper()
	netns.Programs(t, "etcd:etcd-server")
	if !o.Listen.IsValid() {
		o.Listen = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	scheme := "http"
	for _, a := range o.Args {
		if strings.HasPrefix(a, "--cert-file") {
			scheme = "https"
		}
	}
	if o.Port == 0 {
		o.Port = int(ports.Loopback(t).Port())
	}
	s := &Server{
		t: t, opts: o, dir: filepath.Join(t.TempDir(), "etcd"),
		url:  fmt.Sprintf("%s://%s", scheme, netip.AddrPortFrom(o.Listen, uint16(o.Port))),
		peer: fmt.Sprintf("http://%s", ports.Loopback(t)),
	}
	t.Cleanup(func() {
		if t.Failed() && s.proc != nil {
			t.Logf("the end of etcd's log:\n%s", s.proc.log)
		}
		s.stop(syscall.SIGKILL)
	})
	s.Start()
	return s
}

// Endpoint returns the URL for clients. It stays the same over restarts.
func (s *Server) Endpoint() string { return s.url }

// Start runs etcd on the data that is there and returns when it serves.
func (s *Server) Start() {
	s.t.Helper()
	if s.proc != nil {
		s.t.Fatal("etcd runs already")
	}
	argv := append([]string{}, s.opts.Wrap...)
	argv = append(argv, "etcd", "--name=test", "--data-dir="+s.dir, "--logger=zap", "--unsafe-no-fsync",
		"--heartbeat-interval=20", "--election-timeout=200",
		"--listen-client-urls="+s.url, "--advertise-client-urls="+s.url,
		"--listen-peer-urls="+s.peer, "--initial-advertise-peer-urls="+s.peer,
		"--initial-cluster=test="+s.peer, fmt.Sprintf("--initial-cluster-token=test-%d", s.generation))
	argv = append(argv, s.opts.Args...)
	p, err := spawn(argv)
	if err != nil {
		s.t.Fatalf("start etcd: %v", err)
	}
	s.proc = p
	select {
	case <-p.log.serving:
	case <-p.done:
		s.t.Fatalf("etcd ended at start:\n%s", p.log)
	case <-time.After(time.Minute):
		s.t.Fatalf("etcd does not serve after a minute:\n%s", p.log)
	}
}

// spawn starts argv on a thread that lives as long as the process: the signal at the
// parent's death is bound to the thread.
func spawn(argv []string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{}), log: newLogBuffer()}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return p, <-started
}

func (s *Server) stop(sig syscall.Signal) {
	if s.proc == nil {
		return
	}
	_ = s.proc.cmd.Process.Signal(sig)
	<-s.proc.done
	s.proc = nil
}

// Kill ends etcd with SIGKILL and returns when it is gone. The data stays.
func (s *Server) Kill() { s.stop(syscall.SIGKILL) }

// Pause stops etcd's process: connections stay open and nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.proc.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%s to etcd: %v", sig, err)
	}
}

// Client returns a plain client, closed when the test ends. It is for servers
// without TLS and login.
func (s *Server) Client() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.url}, Logger: zap.NewNop()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Compact discards history up to the present revision and returns that.
func (s *Server) Compact() int64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := s.Client()
	resp, err := c.Get(ctx, "x")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		s.t.Fatal(err)
	}
	return resp.Header.Revision
}

// Wipe replaces etcd by an empty one with another cluster id at the same endpoint.
func (s *Server) Wipe() {
	s.t.Helper()
	s.generation++
	s.WipeSameCluster()
}

// WipeSameCluster loses all data and starts etcd with the same flags as before: its
// cluster id is computed from these and so does not change.
func (s *Server) WipeSameCluster() {
	s.t.Helper()
	s.Kill()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatal(err)
	}
	s.Start()
}

// Snapshot stops etcd, copies its data to a new directory, and starts it again.
func (s *Server) Snapshot() (dir string) {
	s.t.Helper()
	dir = filepath.Join(s.t.TempDir(), "copy")
	s.stop(syscall.SIGTERM)
	if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
		s.t.Fatal(err)
	}
	s.Start()
	return dir
}

// Restore puts back what Snapshot copied, and restarts etcd.
func (s *Server) Restore(dir string) {
	s.t.Helper()
	s.Kill()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatal(err)
	}
	if err := os.CopyFS(s.dir, os.DirFS(dir)); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.Start()
}

// logBuffer keeps what etcd prints and notices when it serves.
type logBuffer struct {
	serving chan struct{}
	once    sync.Once
	mu      sync.Mutex
	text    bytes.Buffer
}

func newLogBuffer() *logBuffer { return &logBuffer{serving: make(chan struct{})} }

var _ io.Writer = (*logBuffer)(nil)

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	if bytes.Contains(b.text.Bytes(), []byte("serving client traffic")) {
		b.once.Do(func() { close(b.serving) })
	}
	return len(p), nil
}

// String returns the last lines.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for sc := bufio.NewScanner(bytes.NewReader(b.text.Bytes())); sc.Scan(); {
		lines = append(lines, sc.Text())
	}
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
