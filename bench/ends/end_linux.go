// Package ends measures between two ends with the generators of package load: between two machines, two pods
// of a cluster, or two namespaces of a lab of this process.
//
// The near end runs the measurements. It speaks to the far end by net/rpc. To another machine that goes over
// the standard input and output of a command of the user's that starts the far end, such as ssh or kubectl
// exec; to a namespace over a pipe within this process (Local). Data go from one end to the other beside
// that: over TCP connections to the far end's one port, and over UDP to the same port number, so that a
// firewall or a network policy has to let in only one. To an overlay between them this is ordinary traffic
// between two pods.
//
// A connection for data begins with a tag that only the two ends know, since whoever reaches the port may
// connect.
//
//	end     the far end: a service of net/rpc, and the data connections
//	client  the near end's side of that
//	run     measures to another machine with it
package ends

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
	"weft/test/lab/netns"
	"weft/test/lab/probe"
)

// Version is that of the calls below. Both ends must have the same.
const Version = 3

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
		Bytes int64
		At    time.Duration
		CPU   load.CPU
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
	return serve(ctx, nil, in, out)
}

// serve is Serve for a far end in a namespace, or in this process's own if ns is nil.
func serve(ctx context.Context, ns *netns.Namespace, in io.Reader, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &end{ctx: ctx, here: probe.Endpoint{Name: "far end", NS: ns}, start: time.Now()}
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
	here     probe.Endpoint
	start    time.Time
	tag      string
	port     uint16       // for data
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
	var l *net.TCPListener
	err = load.In(e.here, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(h.Listen))
		return err
	})
	if err != nil {
		return fmt.Errorf("the far end cannot listen there: %w", err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	e.tag, e.here.Addr, e.port = h.Tag, at.Addr(), at.Port()
	*w = Welcome{Machine: look.Machine, At: at}
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
		return load.Sink(e.ctx, fd, &e.bytes)
	case source:
		var never atomic.Bool
		return load.Source(e.ctx, fd, &never)
	case echo:
		cpu := int(b[tagLen+1])
		if cpu >= runtime.NumCPU() {
			cpu = load.AnyCPU
		}
		return load.Answer(e.ctx, fd, cpu)
	}
	return unix.Close(fd)
}

// Read says what the sinks have read.
func (e *end) Read(_ None, r *Reading) error {
	cpu, err := load.ReadCPU()
	*r = Reading{Bytes: e.bytes.Load(), At: time.Since(e.start), CPU: cpu}
	return err
}

// Receive opens the receiver, at the port of the data connections.
func (e *end) Receive(t load.Traffic, _ *None) (err error) {
	if err := e.CloseReceiver(None{}, nil); err != nil {
		return err
	}
	e.receiver, err = load.NewReceiver(e.here, e.port, t.Largest())
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
	sender, err := load.NewSender(e.here, s.To, s.Traffic)
	if err != nil {
		return err
	}
	*t, err = sender.Send(e.ctx, s.Tag, s.Rate, s.Last)
	return errors.Join(err, sender.Close())
}
