package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

// PingPongPlan is one TCP connection on which a message goes to and fro.
type PingPongPlan struct {
	From, To probe.Endpoint
	// Size is the message's in bytes, both ways; 64 by default.
	Size int
	// Duration is how long is measured; 500 ms by default. A tenth of it comes before, to warm up.
	Duration time.Duration
	// FromCPU and ToCPU are where the two ends run, or AnyCPU. What is between them runs
	// wherever the kernel puts it.
	FromCPU, ToCPU int
}

// maxPings bounds the memory for results: a round trip is not below 2 us.
const maxPings = 1 << 20

// PingPong returns the round trips in order.
func PingPong(ctx context.Context, p PingPongPlan) (rtts []time.Duration, err error) {
	p.Size, p.Duration = orElse(p.Size, 64), orElse(p.Duration, 500*time.Millisecond)
	out, in, err := tcpPair(p.From, p.To)
	if err != nil {
		return nil, err
	}
	release := closeOn(ctx, out, in)
	defer release()
	for _, fd := range []int{out, in} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, errors.Join(err, unix.Close(out), unix.Close(in))
		}
	}
	done := make(chan error, 2)
	go func() { done <- answer(in, p.Size, p.ToCPU) }() // both waited for below
	go func() {
		var err error
		rtts, err = ask(out, p)
		done <- err
	}()
	err = errors.Join(<-done, <-done, context.Cause(ctx))
	if err == nil && len(rtts) == 0 {
		err = errors.New("no round trip was measured")
	}
	if err != nil {
		err = fmt.Errorf("ping-pong %s to %s: %w", p.From.Name, p.To.Name, err)
	}
	return rtts, err
}

func ask(fd int, p PingPongPlan) ([]time.Duration, error) {
	defer unix.Close(fd)
	if err := onThread(p.FromCPU); err != nil {
		return nil, err
	}
	b := make([]byte, p.Size)
	rtts := make([]time.Duration, 0, maxPings)
	start := time.Now()
	from, until := p.Duration/10, p.Duration+p.Duration/10
	for last := time.Duration(0); last < until && len(rtts) < maxPings; {
		if _, err := unix.Write(fd, b); err != nil {
			return rtts, fmt.Errorf("write: %w", err)
		}
		if err := readFull(fd, b); err != nil {
			return rtts, fmt.Errorf("read: %w", err)
		}
		now := time.Since(start)
		if last >= from {
			rtts = append(rtts, now-last)
		}
		last = now
	}
	return rtts, nil
}

// answer sends back what comes until the other end closes.
func answer(fd, size, cpu int) error {
	defer unix.Close(fd)
	if err := onThread(cpu); err != nil {
		return err
	}
	b := make([]byte, size)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case n == 0:
			return nil
		default:
			if _, err := unix.Write(fd, b[:n]); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
	}
}
