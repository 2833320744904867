package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Ask sends messages of size bytes to the other end of a connection, which answers each, and says how long
// their round trips took. It lasts a tenth longer than last, to warm up. It runs on that CPU, and closes fd.
func Ask(ctx context.Context, fd, cpu, size int, last time.Duration) ([]time.Duration, error) {
	rtts := make([]time.Duration, 0, 1<<16)
	err := carry(ctx, fd, cpu, func() error { return ask(fd, make([]byte, size), last, &rtts) })
	if err == nil && len(rtts) == 0 {
		err = errors.New("no round trip was measured")
	}
	return rtts, err
}

func ask(fd int, b []byte, last time.Duration, rtts *[]time.Duration) error {
	if err := noDelay(fd); err != nil {
		return err
	}
	start := time.Now()
	for begun := time.Duration(0); begun < last+last/10 || len(*rtts) == 0; {
		// on a busy machine the first alone may take longer than that
		if _, err := unix.Write(fd, b); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if err := readFull(fd, b); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		now := time.Since(start)
		if begun >= last/10 {
			*rtts = append(*rtts, now-begun)
		}
		begun = now
	}
	return nil
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

// answerSize is how much of a message is read, and so sent back, at most in one piece.
const answerSize = 64 << 10

// Answer sends back what comes until the other end closes or ctx ends. It runs on that CPU, and closes fd.
func Answer(ctx context.Context, fd, cpu int) error {
	return carry(ctx, fd, cpu, func() error {
		if err := noDelay(fd); err != nil {
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
	})
}

func noDelay(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	return nil
}
