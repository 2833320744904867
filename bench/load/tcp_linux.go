package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

// TCPPlan is bulk data in one direction.
type TCPPlan struct {
	From, To probe.Endpoint
	// Streams is the number of connections at the same time; 1 by default.
	Streams int
	// WarmUp is how long data flow before they are counted, while windows open and buffers grow; 300 ms by
	// default.
	WarmUp time.Duration
	// Duration is how long it is measured; 1 s by default.
	Duration time.Duration
	// PIDs are the processes whose processor time is of interest.
	PIDs []int
}

// TCPResult says what the receivers read after the warm-up, and what that cost.
type TCPResult struct {
	Bytes   int64
	Elapsed time.Duration
	CPU     CPU
}

// GigabitsPerSecond is the goodput of all streams together.
func (r TCPResult) GigabitsPerSecond() float64 {
	return float64(r.Bytes) * 8 / float64(r.Elapsed.Nanoseconds())
}

// PerGigabyte is how many seconds of cpu were spent for each 10^9 bytes.
func (r TCPResult) PerGigabyte(cpu time.Duration) float64 {
	return cpu.Seconds() / (float64(r.Bytes) / 1e9)
}

const (
	tcpChunk = 128 << 10 // bytes for one write and one read, as iperf3's
	padding  = 64        // a cache line
)

// counter is written by one thread and read by another.
type counter struct {
	n atomic.Int64
	_ [padding]byte
}

// TCP sends as much as the path takes. The error is not nil if any stream failed.
func TCP(ctx context.Context, p TCPPlan) (r TCPResult, err error) {
	p.Streams = max(p.Streams, 1)
	p.WarmUp, p.Duration = orElse(p.WarmUp, 300*time.Millisecond), orElse(p.Duration, time.Second)
	got := make([]counter, p.Streams)
	faults := make([]error, 2*p.Streams)
	var stop atomic.Bool
	var ends sync.WaitGroup
	defer func() {
		stop.Store(true)
		ends.Wait()
		err = errors.Join(append(faults, err, context.Cause(ctx))...)
	}()
	for i := range p.Streams {
		out, in, err := tcpPair(p.From, p.To)
		if err != nil {
			return r, err
		}
		ends.Go(func() { faults[2*i] = Source(ctx, out, &stop) })
		ends.Go(func() { faults[2*i+1] = Sink(ctx, in, &got[i].n) })
	}
	total := func() (sum int64) {
		for i := range got {
			sum += got[i].n.Load()
		}
		return sum
	}
	if err := sleep(ctx, p.WarmUp); err != nil {
		return r, err
	}
	before, err := ReadCPU(p.PIDs...)
	if err != nil {
		return r, err
	}
	from, start := total(), time.Now()
	slept := sleep(ctx, p.Duration)
	r.Bytes, r.Elapsed = total()-from, time.Since(start)
	if slept != nil {
		return r, slept
	}
	after, err := ReadCPU(p.PIDs...)
	r.CPU = after.Sub(before)
	if err == nil && r.Bytes == 0 {
		err = fmt.Errorf("%s to %s: no byte arrived within %s", p.From.Name, p.To.Name, p.Duration)
	}
	return r, err
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Source writes to fd until stop is set or ctx ends, and closes it. It is no error if the other
// end closes first.
func Source(ctx context.Context, fd int, stop *atomic.Bool) error {
	defer unix.Close(fd)
	defer ShutdownOn(ctx, fd)()
	if err := onThread(AnyCPU); err != nil {
		return err
	}
	b := make([]byte, tcpChunk)
	for !stop.Load() {
		switch _, err := unix.Write(fd, b); {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
			return nil
		default:
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// Sink reads from fd until the other end closes it or ctx ends, counts the bytes in got, and closes fd.
func Sink(ctx context.Context, fd int, got *atomic.Int64) error {
	defer unix.Close(fd)
	defer ShutdownOn(ctx, fd)()
	if err := onThread(AnyCPU); err != nil {
		return err
	}
	b := make([]byte, tcpChunk)
	for {
		switch n, err := unix.Read(fd, b); {
		case n > 0:
			got.Add(int64(n))
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("read: %w", err)
		}
	}
}

// readFull reads len(b) bytes.
func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		switch n, err := unix.Read(fd, b); {
		case n > 0:
			b = b[n:]
		case err == nil:
			return io.ErrUnexpectedEOF
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}
