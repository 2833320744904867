package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weft/bench/histogram"
	"weft/bench/load"
	"weft/bench/machine"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/test/lab/probe"
)

// Client is a session with a server. Its methods, except Close, are for one goroutine at a time.
type Client struct {
	token   string
	server  netip.AddrPort
	local   netip.Addr
	session string
	machine report.Machine

	c  *net.TCPConn
	in *lines
	// over is set when the server did not answer in time: what comes then would be the answer to another question.
	over error
	// tag is that of the latest trial. The first depends on the clock, so that late datagrams of
	// another client are not taken for ours.
	tag uint64
}

// Dial begins a session. The error wraps ErrBusy if the server measures with another.
func Dial(ctx context.Context, server netip.AddrPort, token string) (*Client, error) {
	k := &Client{token: token, server: server, tag: uint64(time.Now().UnixNano())}
	c, in, err := k.greet(ctx, hello{Version: Version})
	if err != nil {
		return nil, err
	}
	k.c, k.in, k.local = c, in, addrOf(c.LocalAddr())
	r, err := k.answer(replyTime)
	if err == nil && (r.Session == "" || r.Machine == nil) {
		err = errors.New("the server's welcome is empty")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", server, err), c.Close())
	}
	k.session, k.machine = r.Session, *r.Machine
	return k, nil
}

// Close ends the session.
func (k *Client) Close() error { return k.c.Close() }

// Machine is the machine on which the server runs.
func (k *Client) Machine() report.Machine { return k.machine }

// alive returns nil while the session can go on.
func (k *Client) alive() error {
	if k.over == nil {
		return nil
	}
	return fmt.Errorf("the session with %s is over", k.server)
}

// greet connects, reads the server's greeting and answers with h.
func (k *Client) greet(ctx context.Context, h hello) (*net.TCPConn, *lines, error) {
	d := net.Dialer{Timeout: greetTime}
	conn, err := d.DialContext(ctx, "tcp", k.server.String())
	if err != nil {
		return nil, nil, fmt.Errorf("%w (does weft bench serve run there?)", err)
	}
	c := conn.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(greetTime))
	in := newLines(c)
	var g greeting
	err = in.read(&g)
	switch {
	case err != nil:
		err = fmt.Errorf("%s does not greet as weft bench serve does: %w", k.server, err)
	case g.Version != Version:
		err = fmt.Errorf("%s has version %d of weft bench's protocol, and this is %d: use the same weft at both ends", k.server, g.Version, Version)
	default:
		h.Proof = proof(k.token, g.Nonce)
		err = writeLine(c, h)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, in, nil
}

// answer reads a reply.
func (k *Client) answer(within time.Duration) (r reply, err error) {
	_ = k.c.SetDeadline(time.Now().Add(within))
	if err := k.in.read(&r); err != nil {
		k.over = fmt.Errorf("the server does not answer: %w", err)
		return r, k.over
	}
	switch {
	case r.Busy:
		return r, fmt.Errorf("%w: %s", ErrBusy, r.Error)
	case r.Error != "":
		return r, fmt.Errorf("the server says: %.200s", r.Error)
	}
	return r, nil
}

// ask makes a request and waits for the reply; the server may measure for as long as last before it replies.
func (k *Client) ask(ctx context.Context, q request, last time.Duration) (r reply, err error) {
	stop := context.AfterFunc(ctx, func() { _ = k.c.Close() })
	defer stop()
	_ = k.c.SetDeadline(time.Now().Add(replyTime))
	if err := writeLine(k.c, q); err != nil {
		k.over = err
		return r, errors.Join(err, context.Cause(ctx))
	}
	if r, err = k.answer(last + replyTime); err != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return r, err
}

// open makes a connection for data.
func (k *Client) open(ctx context.Context, r role, cpu int) (fd int, err error) {
	c, in, err := k.greet(ctx, hello{Version: Version, Session: k.session, Role: r, CPU: cpu})
	if err != nil {
		return 0, err
	}
	var answer reply
	if err = in.read(&answer); err == nil && answer.Error != "" {
		err = fmt.Errorf("the server says: %.200s", answer.Error)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("a connection for data: %w", err), c.Close())
	}
	_ = c.SetDeadline(time.Time{})
	return load.Adopt(c)
}

// Forward measures the path to the server, and Backward the path from it.
func (k *Client) Forward() plan.Ends  { return &ends{k, false} }
func (k *Client) Backward() plan.Ends { return &ends{k, true} }

// ends measures in one direction.
type ends struct {
	*Client
	back bool
}

func (e *ends) here() probe.Endpoint { return probe.Endpoint{Name: "client", Addr: e.local} }

// TCP implements plan.Ends. The processor time is that of both machines together.
func (e *ends) TCP(ctx context.Context, streams int, warmUp, last time.Duration) (r load.TCPResult, err error) {
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
			faults[i] = onOwnThread(func() error {
				if e.back {
					return load.Sink(ctx, fd, &got)
				}
				return load.Source(ctx, fd, &stop)
			})
		})
	}
	if err := pause(ctx, warmUp); err != nil {
		return r, err
	}
	before, err := e.read(ctx, &got)
	if err != nil {
		return r, err
	}
	if err := pause(ctx, last); err != nil {
		return r, err
	}
	after, err := e.read(ctx, &got)
	if err != nil {
		return r, err
	}
	r = load.TCPResult{Bytes: after.bytes - before.bytes, Elapsed: after.at - before.at, CPU: after.cpu.Sub(before.cpu)}
	if r.Bytes == 0 {
		err = fmt.Errorf("no byte arrived within %s", last)
	}
	return r, err
}

// reading is how many bytes have arrived at a time of the receiver's clock.
type reading struct {
	bytes int64
	at    time.Duration
	cpu   load.CPU
}

func (e *ends) read(ctx context.Context, got *atomic.Int64) (reading, error) {
	r, err := e.ask(ctx, request{Op: opBytes}, 0)
	if err != nil {
		return reading{}, err
	}
	cpu, err := load.ReadCPU()
	if e.sameMachine() {
		cpu.Machine = time.Duration(r.CPU)
	} else {
		cpu.Machine += time.Duration(r.CPU)
	}
	l := reading{r.Count, time.Duration(r.Nanoseconds), cpu}
	if e.back {
		l.bytes, l.at = got.Load(), time.Duration(time.Now().UnixNano())
	}
	return l, err
}

// sameMachine says whether both ends are on one machine, as in a lab, and so count the same processor time.
func (e *ends) sameMachine() bool {
	return e.machine.Boot != "" && e.machine.Boot == machine.BootID()
}

// PingPong implements plan.Ends. In both directions it is the client that asks.
func (e *ends) PingPong(ctx context.Context, size int, last time.Duration, at plan.Placement) (*histogram.Histogram, error) {
	p := load.PingPongPlan{From: e.here(), Size: size, Duration: last, FromCPU: at.From, ToCPU: at.To}
	fd, err := e.open(ctx, echo, p.ToCPU)
	if err != nil {
		return nil, err
	}
	h, err := load.Ask(ctx, fd, p)
	return h, errors.Join(err, context.Cause(ctx))
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
