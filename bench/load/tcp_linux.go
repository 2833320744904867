package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

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

// tcpChunk is how many bytes one write and one read take, as iperf3's.
const tcpChunk = 128 << 10

// Source writes to fd until stop is set or ctx ends, and closes it when the other end has read everything. It
// is no error if the other end closes first.
func Source(ctx context.Context, fd int, stop *atomic.Bool) error {
	return carry(ctx, fd, AnyCPU, func() error {
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
		// What is still on its way would be in the way of the next measurement. An error no longer matters.
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		_ = retry(func() error { _, err := unix.Read(fd, b); return err })
		return nil
	})
}

// Sink reads from fd until the other end closes it or ctx ends, counts the bytes in got, and closes fd.
func Sink(ctx context.Context, fd int, got *atomic.Int64) error {
	return carry(ctx, fd, AnyCPU, func() error {
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
	})
}
