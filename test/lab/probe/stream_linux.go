package probe

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// StreamPlan is one TCP connection with data in one direction.
type StreamPlan struct {
	From, To Endpoint
	// Bytes ends the stream after so many bytes, and Duration after that time. One of the two is set.
	Bytes    int64
	Duration time.Duration
	// Verify hashes what is sent and what arrives. That costs processor time, so leave it
	// off if throughput is measured.
	Verify bool
}

// StreamResult says what arrived, and how long it took.
type StreamResult struct {
	// Sent and Received are in bytes; they differ only with an error.
	Sent, Received int64
	// Elapsed is from the first byte sent to the last one received.
	Elapsed time.Duration
	// Retransmits is how many segments the sender sent again, by its TCP_INFO.
	Retransmits int
	// SentSum and ReceivedSum are SHA-256 sums; they are set with Verify.
	SentSum, ReceivedSum [sha256.Size]byte
}

// BitsPerSecond is the goodput.
func (r StreamResult) BitsPerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Received) * 8 / r.Elapsed.Seconds()
}

const streamChunk = 256 << 10 // bytes for one write

type received struct {
	n   int64
	at  time.Time
	sum [sha256.Size]byte
	err error
}

// Stream connects, sends and waits until everything has arrived. When ctx ends, it closes both sockets and
// returns what had arrived, with the cause. With Verify, it is an error if the sums differ.
func Stream(ctx context.Context, plan StreamPlan) (StreamResult, error) {
	if (plan.Bytes > 0) == (plan.Duration > 0) {
		return StreamResult{}, errors.New("stream: either bytes or duration is to be set")
	}
	in, out, err := connected(ctx, plan)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return StreamResult{}, err
	}
	defer in.Close()
	defer out.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = out.Close()
		_ = in.Close()
	})
	defer stop()

	arrivals := make(chan received, 1)
	go func() { arrivals <- drain(in, plan.Verify) }() // waited for below; ends when either socket is closed
	start := time.Now()
	r, err := pump(out, plan)
	if closeErr := out.CloseWrite(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = in.Close()
	}
	got := <-arrivals
	r.Received, r.Elapsed, r.ReceivedSum = got.n, got.at.Sub(start), got.sum
	r.Retransmits = retransmits(out)
	if cause := context.Cause(ctx); cause != nil {
		return r, cause
	}
	if err := errors.Join(err, got.err); err != nil {
		return r, fmt.Errorf("stream %s to %s: %w", plan.From.Name, plan.To.Name, err)
	}
	if r.Sent != r.Received || plan.Verify && r.SentSum != r.ReceivedSum {
		return r, fmt.Errorf("stream %s to %s: %d bytes sent (%x), %d received (%x)",
			plan.From.Name, plan.To.Name, r.Sent, r.SentSum[:4], r.Received, r.ReceivedSum[:4])
	}
	return r, nil
}

// connected returns both ends of one connection.
func connected(ctx context.Context, plan StreamPlan) (in, out *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var l *net.TCPListener
	err = plan.To.NS.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(plan.To.Addr, 0)))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: listen: %w", plan.To.Name, err)
	}
	defer l.Close()
	c, err := plan.From.NS.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, nil, fmt.Errorf("%s to %s: %w", plan.From.Name, plan.To.Name, err)
	}
	_ = l.SetDeadline(time.Now().Add(10 * time.Second))
	in, err = l.AcceptTCP()
	if err != nil {
		_ = c.Close()
		return nil, nil, fmt.Errorf("%s: accept: %w", plan.To.Name, err)
	}
	return in, c.(*net.TCPConn), nil
}

// pump writes the same random chunk again and again, with its number in front, so that
// the sum changes if a chunk is lost, doubled or exchanged.
func pump(out *net.TCPConn, plan StreamPlan) (r StreamResult, err error) {
	chunk := make([]byte, streamChunk)
	random := rand.NewChaCha8([32]byte{'w', 'e', 'f', 't'})
	_, _ = random.Read(chunk) // never fails
	var sum hash.Hash
	if plan.Verify {
		sum = sha256.New()
		defer func() { sum.Sum(r.SentSum[:0]) }()
	}
	end := time.Now().Add(plan.Duration)
	for number := uint64(0); ; number++ {
		b := chunk
		if plan.Bytes > 0 {
			b = b[:min(int64(len(b)), plan.Bytes-r.Sent)]
		}
		if len(b) == 0 || plan.Duration > 0 && time.Now().After(end) {
			return r, nil
		}
		if len(b) >= 8 {
			binary.BigEndian.PutUint64(b, number)
		}
		if sum != nil {
			_, _ = sum.Write(b) // never fails
		}
		n, err := out.Write(b)
		r.Sent += int64(n)
		if err != nil {
			return r, err
		}
	}
}

// drain reads to the end.
func drain(in *net.TCPConn, verify bool) (r received) {
	sum := sha256.New()
	b := make([]byte, streamChunk)
	for {
		n, err := in.Read(b)
		r.n += int64(n)
		if verify {
			_, _ = sum.Write(b[:n]) // never fails
		}
		if err != nil {
			r.at = time.Now()
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			if verify {
				sum.Sum(r.sum[:0])
			}
			return r
		}
	}
}

func retransmits(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	total := 0
	_ = raw.Control(func(fd uintptr) { // fails only on a closed socket, whose count nobody knows any more
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
			total = int(info.Total_retrans)
		}
	})
	return total
}
