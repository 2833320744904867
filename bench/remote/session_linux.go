package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/bench/load"
	"weft/test/lab/probe"
)

// maxStreams is how many data connections a session may have at a time.
const maxStreams = 128

// session is the session of one client.
type session struct {
	server      *Server
	name        string
	start       time.Time
	peer, local netip.Addr

	bytes atomic.Int64 // that all sinks have read
	// over ends when the session does.
	over    context.Context
	mu      sync.Mutex
	streams int

	receiver *load.Receiver // only run's goroutine uses it
}

// enter counts one more data connection, and returns false if there is no room for it.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= maxStreams || s.over == nil || s.over.Err() != nil {
		return false
	}
	s.streams++
	return true
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
}

func (s *session) close() {
	if s.receiver != nil {
		_ = s.receiver.Close()
	}
}

// carry does what a data connection is for, and closes fd.
func (s *session) carry(ctx context.Context, fd int, h hello) error {
	// The measurement ends by this time, whatever the client does.
	ctx, cancel := context.WithTimeout(ctx, 2*s.server.o.MaxDuration)
	defer cancel()
	stop := context.AfterFunc(s.over, cancel)
	defer stop()
	switch h.Role {
	case sink:
		return onOwnThread(func() error { return load.Sink(ctx, fd, &s.bytes) })
	case source:
		var never atomic.Bool
		return onOwnThread(func() error { return load.Source(ctx, fd, &never) })
	case echo:
		cpu := h.CPU
		if cpu < 0 || cpu >= runtime.NumCPU() {
			cpu = load.AnyCPU
		}
		return load.Answer(ctx, fd, cpu)
	}
	return errors.Join(fmt.Errorf("there is no role %.20q", h.Role), unix.Close(fd))
}

// onOwnThread runs fn on a goroutine of its own, which may lock its thread for good, and waits for it.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return <-done
}

// run answers requests until the client goes away, says nothing for long, or ctx ends.
func (s *session) run(ctx context.Context, c *net.TCPConn, in *lines, welcome reply) (err error) {
	over, end := context.WithCancelCause(ctx)
	over, stop := context.WithTimeout(over, s.server.o.MaxSession)
	defer stop()
	s.mu.Lock()
	s.over = over
	s.mu.Unlock()
	if err := writeLine(c, welcome); err != nil {
		end(err)
		return err
	}
	// Requests are read while an earlier one is still worked on, so that it is noticed at once if the client goes away.
	requests := make(chan request)
	read := make(chan struct{})
	defer func() {
		end(err)
		_ = c.Close()
		<-read
	}()
	go func() {
		defer close(read)
		defer close(requests)
		for {
			_ = c.SetDeadline(time.Now().Add(idleTime + s.server.o.MaxDuration))
			var q request
			if err := in.read(&q); err != nil {
				end(err)
				return
			}
			select {
			case requests <- q:
			case <-over.Done():
				return
			}
		}
	}()
	for {
		idle := time.NewTimer(idleTime)
		select {
		case q, more := <-requests:
			idle.Stop()
			if !more {
				return context.Cause(over)
			}
			r, err := s.do(over, q)
			if err != nil {
				r.Error = err.Error()
			}
			if err := writeLine(c, r); err != nil {
				return err
			}
		case <-idle.C:
			return fmt.Errorf("nothing was asked for %s", idleTime)
		case <-over.Done():
			idle.Stop()
			return context.Cause(over)
		}
	}
}

// do answers one request.
func (s *session) do(ctx context.Context, q request) (r reply, err error) {
	switch q.Op {
	case opBytes:
		cpu, err := load.ReadCPU()
		return reply{Count: s.bytes.Load(), Nanoseconds: int64(time.Since(s.start)), CPU: int64(cpu.Machine)}, err
	case opOpen:
		return r, s.open(q)
	case opSend:
		return s.send(ctx, q)
	case opExpect, opCount, opQuiet, opClose:
		if s.receiver == nil {
			return r, fmt.Errorf("%q before %q", q.Op, opOpen)
		}
		return s.receiving(ctx, q)
	}
	return r, fmt.Errorf("there is no request %.20q", q.Op)
}

// receiving answers a request that needs the receiver.
func (s *session) receiving(ctx context.Context, q request) (r reply, err error) {
	switch q.Op {
	case opExpect:
		s.receiver.Expect(q.Tag)
	case opCount:
		r.Count = s.receiver.Count()
	case opQuiet:
		err = s.receiver.Quiet(ctx)
	default:
		err = s.receiver.Close()
		s.receiver = nil
	}
	return r, err
}

func (s *session) here() probe.Endpoint { return probe.Endpoint{Name: "server", Addr: s.local} }

// open opens the receiver, at the server's own port number.
func (s *session) open(q request) error {
	if s.receiver != nil {
		return errors.New("there is a receiver already")
	}
	if q.Traffic == nil {
		return errors.New("no traffic was described")
	}
	if err := q.Traffic.Check(); err != nil {
		return err
	}
	if q.Receive != load.Drain && q.Receive != load.Wait {
		return fmt.Errorf("there is no %s", q.Receive)
	}
	r, err := load.NewReceiver(s.here(), s.server.Addr().Port(), q.Receive, q.Traffic.Largest())
	s.receiver = r
	return err
}

// firstPort is the first port above those that are reserved for services.
const firstPort = 1024

// send sends datagrams to the address of the client, and to no other.
func (s *session) send(ctx context.Context, q request) (r reply, err error) {
	last := time.Duration(q.Milliseconds) * time.Millisecond
	switch {
	case q.Traffic == nil:
		return r, errors.New("no traffic was described")
	case last <= 0 || q.Milliseconds > s.server.o.MaxDuration.Milliseconds():
		return r, fmt.Errorf("%d ms: want 1 to %d", q.Milliseconds, s.server.o.MaxDuration.Milliseconds())
	case q.Rate < 0 || q.Rate > s.server.o.MaxRate:
		return r, fmt.Errorf("%g packets a second: the server's limit is %g", q.Rate, s.server.o.MaxRate)
	}
	if q.Rate == 0 {
		q.Rate = s.server.o.MaxRate // as fast as it can, within the limit
	}
	if q.Port < firstPort {
		return r, fmt.Errorf("port %d: want %d or more", q.Port, firstPort)
	}
	to := netip.AddrPortFrom(s.peer, q.Port)
	sender, err := load.NewSender(s.here(), to, *q.Traffic)
	if err != nil {
		return r, err
	}
	t, err := sender.Send(ctx, q.Tag, q.Rate, last)
	return reply{Count: t.Sent, Nanoseconds: int64(t.Elapsed)}, errors.Join(err, sender.Close())
}
