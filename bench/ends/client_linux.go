package ends

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/bench/load"
	"weft/bench/machine"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/test/lab/probe"
)

const (
	// replyTime is how long an answer may take, beyond what measuring takes.
	replyTime = 15 * time.Second
	// grace is how long after the last datagram was sent one that arrives still counts as delivered. If the far
	// end counts, it is half a round trip longer, since it has to be asked.
	grace = 10 * time.Millisecond
)

// Client is the near end of a session. Its methods, except Close, are for one goroutine at a time.
type Client struct {
	rpc     *rpc.Client
	tag     string
	here    probe.Endpoint
	at      netip.AddrPort // the far end's port for data
	machine report.Machine
	pids    func() []int // of the daemons between the ends, if they are known
	over    error        // set when an answer did not come
	trial   uint64       // the tag of the latest trial's datagrams
	wait    func() error // for the far end, if it is in this process
}

// Dial begins a session with the far end at the other side of c, which is to listen at to.
func Dial(ctx context.Context, c io.ReadWriteCloser, to netip.AddrPort) (*Client, error) {
	k := &Client{pids: func() []int { return nil }, wait: func() error { return nil }}
	return k, k.begin(ctx, c, to)
}

// Local begins a session between two namespaces of this machine, with a far end in this process. pids are the
// daemons between them, whose processor time is measured. The namespaces outlive the session.
func Local(ctx context.Context, from, to probe.Endpoint, pids func() []int) (*Client, error) {
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, to.NS, far, far) }() // Close waits for it
	k := &Client{here: from, pids: pids, wait: func() error { return <-ended }}
	return k, k.begin(ctx, near, netip.AddrPortFrom(to.Addr, 0))
}

// begin closes the session if it cannot begin.
func (k *Client) begin(ctx context.Context, c io.ReadWriteCloser, to netip.AddrPort) error {
	k.rpc, k.tag = rpc.NewClient(c), rand.Text()
	w, err := call[Welcome](ctx, k, "Hello", Hello{Version: Version, Listen: to, Tag: k.tag}, 0)
	if err == nil {
		k.machine, k.at = w.Machine, w.At
		if k.here.NS == nil {
			k.here.Name = "near end"
			k.here.Addr, err = addrTowards(k.at)
		}
	}
	if err != nil {
		return errors.Join(err, k.Close())
	}
	return nil
}

// addrTowards returns this machine's address on the way to at.
func addrTowards(at netip.AddrPort) (netip.Addr, error) {
	c, err := net.Dial("udp", at.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// Close ends the session.
func (k *Client) Close() error { return errors.Join(k.rpc.Close(), k.wait()) }

// There measures to the far end, and Back from it.
func (k *Client) There() plan.Ends { return &ends{k, false} }
func (k *Client) Back() plan.Ends  { return &ends{k, true} }

// alive returns nil while the session can go on.
func (k *Client) alive() error { return k.over }

// call waits for the answer of a method; the far end may measure for as long as last before it answers.
func call[R any](ctx context.Context, k *Client, method string, args any, last time.Duration) (R, error) {
	r, none := new(R), *new(R) // a late answer still writes r
	t := time.NewTimer(last + replyTime)
	defer t.Stop()
	c := k.rpc.Go("End."+method, args, r, make(chan *rpc.Call, 1))
	var refused rpc.ServerError
	select {
	case <-c.Done:
		if c.Error == nil || errors.As(c.Error, &refused) {
			return *r, c.Error
		}
		k.over = fmt.Errorf("the far end has ended: %w", c.Error)
	case <-t.C:
		k.over = errors.New("the far end does not answer")
	case <-ctx.Done():
		k.over = context.Cause(ctx)
	}
	return none, k.over
}

// open makes a connection for data.
func (k *Client) open(ctx context.Context, r role, cpu int) (fd int, err error) {
	if fd, err = load.Connect(ctx, k.here, k.at); err != nil {
		return 0, fmt.Errorf("a connection for data: %w", err)
	}
	if cpu == load.AnyCPU {
		cpu = anyCPU
	}
	if _, err := unix.Write(fd, append([]byte(k.tag), byte(r), byte(cpu))); err != nil {
		return 0, errors.Join(fmt.Errorf("a connection for data: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// ends measures in one direction: to the far end, or back from it.
type ends struct {
	*Client
	back bool
}

// TCP implements plan.Ends. The processor time is that of both machines together.
func (e *ends) TCP(ctx context.Context, streams int, warmUp, last time.Duration) (r load.TCPResult,
	err error) {
	ctx, cancel := context.WithCancel(ctx)
	var stop atomic.Bool
	var got atomic.Int64
	var wg sync.WaitGroup
	faults := make([]error, streams)
	defer func() {
		stop.Store(true)
		if e.back {
			cancel() // nothing else ends our sinks
		}
		wg.Wait()
		cancel()
		if !e.back {
			err = errors.Join(append(faults, err)...)
		}
	}()
	there := sink
	if e.back {
		there = source
	}
	for i := range streams {
		fd, err := e.open(ctx, there, load.AnyCPU)
		if err != nil {
			return r, err
		}
		wg.Go(func() {
			if e.back {
				faults[i] = load.Sink(ctx, fd, &got)
			} else {
				faults[i] = load.Source(ctx, fd, &stop)
			}
		})
	}
	if err := load.Sleep(ctx, warmUp); err != nil {
		return r, err
	}
	before, err := e.read(ctx, &got)
	if err != nil {
		return r, err
	}
	if err := load.Sleep(ctx, last); err != nil {
		return r, err
	}
	after, err := e.read(ctx, &got)
	if err != nil {
		return r, err
	}
	r = load.TCPResult{Bytes: after.Bytes - before.Bytes, Elapsed: after.At - before.At,
		CPU: after.CPU.Sub(before.CPU)}
	if r.Bytes == 0 {
		err = fmt.Errorf("no byte arrived within %s", last)
	}
	return r, err
}

// read says how many bytes have arrived by a time of the receiver's clock, and what that has cost until now.
func (e *ends) read(ctx context.Context, got *atomic.Int64) (Reading, error) {
	r, err := call[Reading](ctx, e.Client, "Read", None{}, 0)
	if err != nil {
		return r, err
	}
	theirs := r.CPU.Machine
	r.CPU, err = load.ReadCPU(e.pids()...)
	if e.machine.Boot == "" || e.machine.Boot != machine.BootID() { // else both have counted the same
		r.CPU.Machine += theirs
	}
	if e.back {
		r.Bytes, r.At = got.Load(), time.Duration(time.Now().UnixNano())
	}
	return r, err
}

// PingPong implements plan.Ends. In both directions the near end asks.
func (e *ends) PingPong(ctx context.Context, size int, last time.Duration,
	at plan.Placement) ([]time.Duration, error) {
	fd, err := e.open(ctx, echo, at.To)
	if err != nil {
		return nil, err
	}
	h, err := load.Ask(ctx, fd, at.From, size, last)
	return h, errors.Join(err, context.Cause(ctx))
}

// Open implements plan.Ends.
func (e *ends) Open(ctx context.Context, t load.Traffic) (plan.Flow, error) {
	if e.back {
		r, err := load.NewReceiver(e.here, 0, t.Largest())
		if err != nil {
			return nil, err
		}
		return &backward{e, t, r}, nil
	}
	if _, err := call[None](ctx, e.Client, "Receive", t, 0); err != nil {
		return nil, err
	}
	s, err := load.NewSender(e.here, e.at, t)
	if err != nil {
		return nil, err // the far end closes its receiver with the next one, or at its end
	}
	return &forward{e, s}, nil
}

// forward is a flow to the far end.
type forward struct {
	*ends
	sender *load.Sender
}

func (f *forward) Trial(ctx context.Context, rate float64, last time.Duration) (t load.Trial, err error) {
	f.trial++
	if _, err := call[None](ctx, f.Client, "Expect", f.trial, 0); err != nil {
		return t, err
	}
	if t, err = f.sender.Send(ctx, f.trial, rate, last); err != nil {
		return t, err
	}
	if err := load.Sleep(ctx, grace); err != nil {
		return t, err
	}
	t.Received, err = call[int64](ctx, f.Client, "Count", None{}, time.Second)
	return t, err
}

func (f *forward) Close() error {
	_, err := call[None](context.Background(), f.Client, "CloseReceiver", None{}, 0)
	return errors.Join(err, f.sender.Close())
}

// backward is a flow from the far end.
type backward struct {
	*ends
	traffic  load.Traffic
	receiver *load.Receiver
}

func (f *backward) Trial(ctx context.Context, rate float64, last time.Duration) (t load.Trial, err error) {
	f.trial++
	f.receiver.Expect(f.trial)
	t, err = call[load.Trial](ctx, f.Client, "Send", Send{f.traffic, f.receiver.Addr(), f.trial, rate, last},
		last)
	if err != nil {
		return t, err
	}
	if err := load.Sleep(ctx, grace); err != nil {
		return t, err
	}
	t.Received = f.receiver.Count()
	return t, f.receiver.Quiet(ctx)
}

func (f *backward) Close() error { return f.receiver.Close() }
