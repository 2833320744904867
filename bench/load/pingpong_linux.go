package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

// PingPongPlan is one TCP connection on which a message goes to and fro.
type PingPongPlan struct {
	From, To probe.Endpoint
	// Size is the number of bytes in the message, in both directions; 64 by default.
	Size int
	// Duration is how long it is measured; 500 ms by default. A tenth as long is spent before that, to warm up.
	Duration time.Duration
	// FromCPU and ToCPU are the CPUs on which the two ends run, or AnyCPU. Daemons between them run
	// wherever the kernel puts them.
	FromCPU, ToCPU int
}

// RoundTrips are how long round trips took, from the shortest to the longest.
type RoundTrips []time.Duration

// Quantile returns what the share q (0 to 1) of them does not exceed. It is 0 if there are none.
func (l RoundTrips) Quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(max(int(math.Ceil(q*float64(len(l))))-1, 0), len(l)-1)]
}

// PingPong sends messages to and fro and says how long their round trips took.
func PingPong(ctx context.Context, p PingPongPlan) (RoundTrips, error) {
	p.Size, p.Duration = orElse(p.Size, 64), orElse(p.Duration, 500*time.Millisecond)
	out, in, err := tcpPair(p.From, p.To)
	if err != nil {
		return nil, err
	}
	answered := make(chan error, 1)
	go func() { answered <- Answer(ctx, in, p.ToCPU) }() // waited for below
	rtts, err := Ask(ctx, out, p)
	if err = errors.Join(err, <-answered, context.Cause(ctx)); err != nil {
		err = fmt.Errorf("ping-pong %s to %s: %w", p.From.Name, p.To.Name, err)
	}
	return rtts, err
}

// Ask is the end that measures, on a connection that it closes. It does not look at the plan's
// endpoints and ToCPU.
func Ask(ctx context.Context, fd int, p PingPongPlan) (RoundTrips, error) {
	rtts := make(RoundTrips, 0, 1<<16)
	done := make(chan error, 1)
	go func() { done <- ask(ctx, fd, p, &rtts) }()
	err := <-done
	if err == nil && len(rtts) == 0 {
		err = errors.New("no round trip was measured")
	}
	slices.Sort(rtts)
	return rtts, err
}

func ask(ctx context.Context, fd int, p PingPongPlan, rtts *RoundTrips) error {
	defer unix.Close(fd)
	defer ShutdownOn(ctx, fd)()
	if err := errors.Join(onThread(p.FromCPU), noDelay(fd)); err != nil {
		return err
	}
	b := make([]byte, p.Size)
	start := time.Now()
	from, until := p.Duration/10, p.Duration+p.Duration/10
	for last := time.Duration(0); last < until || len(*rtts) == 0; {
		// on a busy machine the first alone may take longer than until
		if _, err := unix.Write(fd, b); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if err := readFull(fd, b); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		now := time.Since(start)
		if last >= from {
			*rtts = append(*rtts, now-last)
		}
		last = now
	}
	return nil
}

// answerSize is how much of a message is read, and so sent back, at most in one piece.
const answerSize = 64 << 10

// Answer sends back what comes until the other end closes or ctx ends, and closes fd.
func Answer(ctx context.Context, fd, cpu int) error {
	done := make(chan error, 1)
	go func() { done <- answer(ctx, fd, cpu) }()
	return <-done
}

func answer(ctx context.Context, fd, cpu int) error {
	defer unix.Close(fd)
	defer ShutdownOn(ctx, fd)()
	if err := errors.Join(onThread(cpu), noDelay(fd)); err != nil {
		return err
	}
	b := make([]byte, answerSize)
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

func noDelay(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	return nil
}
