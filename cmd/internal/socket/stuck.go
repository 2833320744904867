package socket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"weft/cmd/internal/rights"
)

// ErrStuck says that a weftd is there but does not answer: it is stopped, or far too busy. It may have
// received the request, and may still do what it asks.
var ErrStuck = errors.New("weftd is there, but does not answer")

// stuckEvery is the time between checks of the process of a daemon that has not answered yet.
const stuckEvery = 500 * time.Millisecond

// listener is the process that listens on the socket to which a request went. pid is 0 while it is unknown,
// or if the process is in a pid namespace that this one does not see. It is safe for concurrent use.
type listener struct {
	pid  atomic.Int32
	conn *net.UnixConn // read once the answer has come
}

// dial connects to the socket, and remembers which process listens there.
func (l *listener) dial(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	l.conn = c.(*net.UnixConn)
	if cred, err := rights.Peer(l.conn); err == nil { // else the pid stays unknown
		l.pid.Store(cred.Pid)
	}
	return c, nil
}

// Stopped reports whether a signal has stopped a process.
func Stopped(pid int) bool { return stateOf(pid) == 'T' }

func (l *listener) state() byte { return stateOf(int(l.pid.Load())) }

// stateOf returns the letter for a process's state in /proc/PID/stat, 0 if it cannot be read.
func stateOf(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if i := bytes.LastIndex(b, []byte(") ")); err == nil && i >= 0 && i+2 < len(b) { // the name may have one too
		return b[i+2]
	}
	return 0
}

// watch ends a request, by cancel, that a stopped daemon would never answer. It returns with ctx.
func (l *listener) watch(ctx context.Context, socket string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(stuckEvery)
	defer tick.Stop()
	for seen := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s := l.state(); s != 'T' && s != 't' {
			seen = 0
		} else if seen++; seen == 2 { // a debugger may have held it for a moment
			cancel(l.stuck(socket))
			return
		}
	}
}

// stuck returns an error that says what is known about a daemon that does not answer.
func (l *listener) stuck(socket string) error {
	pid := l.pid.Load()
	if pid == 0 {
		return fmt.Errorf("%w on %s", ErrStuck, socket)
	}
	what := fmt.Sprintf("pid %d", pid)
	switch s := l.state(); s {
	case 'T':
		what += fmt.Sprintf(", stopped: kill -CONT %d lets it go on", pid)
	case 't':
		what += ", stopped by a debugger"
	case 0:
	default:
		what += fmt.Sprintf(", state %c of ps(1)", s)
	}
	return fmt.Errorf("%w on %s (%s)", ErrStuck, socket, what)
}

// timedOut reports whether err says that a timeout passed, or that the socket's queue of connections is full.
func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout() || errors.Is(err, syscall.EAGAIN)
}
