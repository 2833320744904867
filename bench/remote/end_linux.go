// Package remote measures between two machines, or two pods of a cluster, with the generators of package
// load.
//
// The near end runs the measurements. It starts the far end through a command of the user's, such as ssh or
// kubectl exec, and speaks to it by net/rpc over that program's standard input and output. Data go from one
// end to the other beside that: over TCP connections to the far end's one port, and over UDP to the same port
// number, so that a firewall or a network policy has to let in only one. To an overlay between them this is
// ordinary traffic between two pods.
//
// A connection for data begins with a tag that only the two ends know, since whoever reaches the port may
// connect.
//
//	end     the far end: a service of net/rpc, and the data connections
//	client  the near end's side of that
//	run     measures with it
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/rpc"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/bench/load"
	"weft/bench/machine"
	"weft/bench/report"
	"weft/test/lab/probe"
)

// Version is that of the calls below. Both ends must have the same.
const Version = 2

// DefaultPort is the far end's port by default, with TCP and UDP.
const DefaultPort = 5210

// introduceTime is how long a connection for data may take to say what it is.
const introduceTime = 5 * time.Second

// The types that cross. Times are of the far end's clock.
type (
	// Hello begins a session. Listen is the far end's address; its port may be 0.
	Hello struct {
		Version int
		Listen  netip.AddrPort
		Tag     string
	}
	// Welcome is the answer.
	Welcome struct {
		Machine report.Machine
		At      netip.AddrPort
	}
	// Reading says how many bytes have arrived by when, and what processor time the machine has used.
	Reading struct {
		Bytes   int64
		At, CPU time.Duration
	}
	// Receive asks for a receiver of datagrams.
	Receive struct {
		Traffic load.Traffic
		Mode    load.ReceiveMode
	}
	// Send asks for datagrams to an address.
	Send struct {
		Traffic load.Traffic
		To      netip.AddrPort
		Tag     uint64
		Rate    float64 // packets a second; 0 for as fast as it can
		Last    time.Duration
	}
	// None is for a call without arguments or without a result.
	None struct{}
)

// role is what the far end does with a data connection.
type role byte

const (
	_      role = iota
	sink        // reads and counts
	source      // writes
	echo        // sends back
)

// A data connection begins with the tag, of tagLen bytes, the role, and the CPU on which an echo runs.
const (
	tagLen       = 26 // of rand.Text
	introduction = tagLen + 2
	anyCPU       = 255
)

// Serve is the far end. It answers the near end at the other side of in and out, and returns when that is
// gone and nothing that it asked for is left.
func Serve(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &end{ctx: ctx, start: time.Now()}
	s := rpc.NewServer()
	if err := s.RegisterName("End", e); err != nil {
		return err
	}
	s.ServeConn(&stream{Reader: in, WriteCloser: out, ended: cancel}) // it waits for the calls
	cancel()
	e.carriers.Wait()
	return e.CloseReceiver(None{}, nil)
}

// stream ends the session as soon as nothing more can be read.
type stream struct {
	io.Reader
	io.WriteCloser
	ended func()
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil {
		s.ended()
	}
	return n, err
}

// end is the far end. The near end makes one call at a time.
type end struct {
	ctx      context.Context
	start    time.Time
	tag      string
	at       netip.AddrPort
	bytes    atomic.Int64 // that all sinks have read
	carriers sync.WaitGroup
	receiver *load.Receiver
}

// Hello listens for data.
func (e *end) Hello(h Hello, w *Welcome) error {
	switch {
	case h.Version != Version:
		return fmt.Errorf("the far end has version %d of weft bench's calls, and the near end %d: use the same "+
			"weft at both", Version, h.Version)
	case len(h.Tag) != tagLen || e.tag != "":
		return errors.New("there is no session to begin")
	}
	look, err := machine.Observe()
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(h.Listen))
	if err != nil {
		return fmt.Errorf("the far end cannot listen there: %w", err)
	}
	e.tag, e.at = h.Tag, l.Addr().(*net.TCPAddr).AddrPort()
	*w = Welcome{Machine: look.Machine, At: e.at}
	context.AfterFunc(e.ctx, func() { _ = l.Close() })
	e.carriers.Go(func() { e.accept(l) })
	return nil
}

func (e *end) accept(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if e.ctx.Err() != nil {
			return
		}
		if err != nil { // there are no descriptors left, or the like: try again soon
			time.Sleep(100 * time.Millisecond)
			continue
		}
		e.carriers.Go(func() { _ = e.carry(c) }) // the near end sees what came of it
	}
}

// carry does what a data connection is for, and closes it.
func (e *end) carry(c *net.TCPConn) error {
	stop := context.AfterFunc(e.ctx, func() { _ = c.Close() })
	b := make([]byte, introduction)
	err := c.SetDeadline(time.Now().Add(introduceTime))
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	if err == nil && string(b[:tagLen]) != e.tag {
		err = errors.New("a stranger")
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	stop()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	fd, err := load.Adopt(c)
	if err != nil {
		return err
	}
	switch role(b[tagLen]) {
	case sink:
		return onOwnThread(func() error { return load.Sink(e.ctx, fd, &e.bytes) })
	case source:
		var never atomic.Bool
		return onOwnThread(func() error { return load.Source(e.ctx, fd, &never) })
	case echo:
		cpu := int(b[tagLen+1])
		if cpu >= runtime.NumCPU() {
			cpu = load.AnyCPU
		}
		return load.Answer(e.ctx, fd, cpu)
	}
	return unix.Close(fd)
}

// onOwnThread runs fn on a goroutine of its own, which may lock its thread for good, and waits for it.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return <-done
}

// Read says what the sinks have read.
func (e *end) Read(_ None, r *Reading) error {
	cpu, err := load.ReadCPU()
	*r = Reading{Bytes: e.bytes.Load(), At: time.Since(e.start), CPU: cpu.Machine}
	return err
}

func (e *end) here() probe.Endpoint { return probe.Endpoint{Name: "far end", Addr: e.at.Addr()} }

// Receive opens the receiver, at the port of the data connections.
func (e *end) Receive(r Receive, _ *None) (err error) {
	if err := errors.Join(r.Traffic.Check(), e.CloseReceiver(None{}, nil)); err != nil {
		return err
	}
	e.receiver, err = load.NewReceiver(e.here(), e.at.Port(), r.Mode, r.Traffic.Largest())
	return err
}

var errNoReceiver = errors.New("there is no receiver")

// Expect begins to count the datagrams with the tag.
func (e *end) Expect(tag uint64, _ *None) error {
	if e.receiver == nil {
		return errNoReceiver
	}
	e.receiver.Expect(tag)
	return nil
}

// Count says how many of those have arrived, and waits until no datagram arrives any more.
func (e *end) Count(_ None, n *int64) error {
	if e.receiver == nil {
		return errNoReceiver
	}
	*n = e.receiver.Count()
	return e.receiver.Quiet(e.ctx)
}

// CloseReceiver closes the receiver, if there is one.
func (e *end) CloseReceiver(None, *None) error {
	if e.receiver == nil {
		return nil
	}
	r := e.receiver
	e.receiver = nil
	return r.Close()
}

// Send sends datagrams.
func (e *end) Send(s Send, t *load.Trial) error {
	sender, err := load.NewSender(e.here(), s.To, s.Traffic)
	if err != nil {
		return err
	}
	*t, err = sender.Send(e.ctx, s.Tag, s.Rate, s.Last)
	return errors.Join(err, sender.Close())
}
