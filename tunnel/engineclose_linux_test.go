package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel/port"
)

// watchedPort is readable at once, and knows when it is touched after its end.
type watchedPort struct {
	t       *testing.T
	fd      int
	second  bool // it has another queue, which epoll refuses
	reading chan struct{}
	once    sync.Once
	busy    atomic.Int32
	closed  atomic.Bool
}

func newWatchedPort(t *testing.T) *watchedPort {
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	return &watchedPort{t: t, fd: fd, reading: make(chan struct{}, 1)}
}

// touch is what every use of the port does for a while.
func (p *watchedPort) touch(what string) {
	p.busy.Add(1)
	defer p.busy.Add(-1)
	for range 20 {
		runtime.Gosched()
		if p.closed.Load() {
			p.t.Errorf("%s of a port that is closed", what)
			return
		}
	}
}

func (p *watchedPort) PollFD() int { return p.fd }

func (p *watchedPort) ReadBatch(*port.Ring) error {
	select {
	case p.reading <- struct{}{}:
	default:
	}
	p.touch("read")
	return nil
}

func (p *watchedPort) WriteBatch(*port.Ring, []*port.Packet) {}

func (p *watchedPort) Overflow() uint64 {
	p.touch("count")
	return 1
}

func (p *watchedPort) Close() error {
	p.closed.Store(true)
	return unix.Close(p.fd)
}

// Queues implements port.Queued.
func (p *watchedPort) Queues() []port.Queue {
	if p.second {
		return []port.Queue{p, refusedQueue{p}}
	}
	return []port.Queue{p}
}

// refusedQueue is one whose descriptor is none. It is asked for once the first is being read.
type refusedQueue struct{ *watchedPort }

func (q refusedQueue) PollFD() int {
	q.once.Do(func() {
		select {
		case <-q.reading:
		case <-time.After(await.Patience):
			q.t.Error("the first queue is not read")
		}
	})
	return -1
}

func watchedEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

// A port that cannot be attached whole is the caller's again, who closes it: nobody reads it
// any more.
func TestAttachFailsAndLetsGo(t *testing.T) {
	e := watchedEngine(t)
	for range 50 {
		p := newWatchedPort(t)
		p.second = true
		if _, err := e.Attach(p, RoleHost); err == nil {
			t.Fatal("a descriptor that is none is attached")
		}
		if p.busy.Load() != 0 {
			t.Error("a worker still reads the port")
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// polled is how many descriptors the workers wait at, besides their bells.
func polled(t *testing.T, e *Engine) (n int) {
	t.Helper()
	for _, w := range e.workers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", w.poll.fd))
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(text), "tfd:") - 1
	}
	return n
}

// lostPort fails at its first read.
type lostPort struct{ *watchedPort }

func (p lostPort) ReadBatch(*port.Ring) error { return unix.ENODEV }
func (p lostPort) Queues() []port.Queue       { return []port.Queue{p} }

// A port that has gone is waited at no more, though another process may have its descriptor, or it is not
// closed yet: it would be readable for ever.
func TestPortsThatWentAreNotPolled(t *testing.T) {
	e := watchedEngine(t)
	p := newWatchedPort(t)
	kept, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0) // as a holder has it
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept)
	id, err := e.Attach(p, RoleHost)
	if err != nil || polled(t, e) != 1 {
		t.Fatalf("%d are polled, %v", polled(t, e), err)
	}
	if err := e.Detach(id); err != nil || polled(t, e) != 0 {
		t.Errorf("detached: %d are polled, %v", polled(t, e), err)
	}
	if id, err = e.Attach(lostPort{newWatchedPort(t)}, RoleHost); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the lost port is not polled", func() error {
		if n := polled(t, e); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if err := e.Detach(id); err != nil {
		t.Error(err)
	}
}

// Whoever asks for the counters while a port goes asks no port that is closed, and counts what it
// lost once.
func TestStatsWhilePortsGo(t *testing.T) {
	e := watchedEngine(t)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := uint64(0); ; {
			select {
			case <-end:
				return
			default:
			}
			got := e.Stats().SocketOverflow
			if got < last {
				t.Errorf("%d lost, and before %d", got, last)
				return
			}
			last = got
		}
	}()
	for range 200 {
		id, err := e.Attach(newWatchedPort(t), RoleHost)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Detach(id); err != nil {
			t.Fatal(err)
		}
	}
	close(end)
	<-done
}

// An engine whose workers fail is not rung any more once Run has returned: the descriptors
// are somebody else's by then.
func TestRunFailsAndLetsGo(t *testing.T) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	for range 100 {
		e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Dup3(null, e.workers[0].poll.fd, unix.O_CLOEXEC); err != nil { // nothing to wait on
			t.Fatal(err)
		}
		bell := e.workers[0].poll.wakeupFD
		if err := e.Run(context.Background()); !errors.Is(err, unix.EINVAL) {
			t.Fatalf("Run: %v, want EINVAL", err)
		}
		next, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		if next != bell {
			err = errors.Join(unix.Dup3(next, bell, unix.O_CLOEXEC), unix.Close(next))
		}
		for range 100 {
			runtime.Gosched()
		}
		var b [8]byte
		if _, rung := unix.Read(bell, b[:]); rung == nil {
			t.Fatal("somebody else's descriptor was written to")
		}
		if err := errors.Join(err, unix.Close(bell)); err != nil {
			t.Fatal(err)
		}
	}
}

// Who ends a backend runs its engine once more, with a context that has ended. What had the numbers of its
// descriptors has others by then.
func TestRunAgainTouchesNothing(t *testing.T) {
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != nil {
		t.Fatal(err)
	}
	others := map[int]bool{}
	for _, w := range e.workers {
		others[w.poll.wakeupFD], others[w.poll.fd] = true, true
	}
	for fd := range others { // as if somebody had opened them
		own, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		if own != fd {
			if err := errors.Join(unix.Dup3(own, fd, unix.O_CLOEXEC), unix.Close(own)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.Run(ctx); err != nil {
		t.Error(err)
	}
	for fd := range others {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("somebody else's descriptor: %v, want nothing to be read from it", err)
		}
		_ = unix.Close(fd)
	}
}

// TestEngineHearsErrorsAgain: an engine that runs ends the silence after a flood of errors.
func TestEngineHearsErrorsAgain(t *testing.T) {
	s, err := port.ListenUDP(port.UDPOptions{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	e := watchedEngine(t)
	if _, err := e.Attach(s, RoleUnderlay); err != nil {
		t.Fatal(err)
	}
	hears := func() bool {
		on, err := unix.GetsockoptInt(s.Queues()[0].PollFD(), unix.IPPROTO_IP, unix.IP_RECVERR)
		if err != nil {
			t.Fatal(err)
		}
		return on == 1
	}
	s.Mute()
	await.OK(t, "errors are heard again", func() error {
		if !hears() {
			return errors.New("the socket is mute")
		}
		return nil
	})
}
