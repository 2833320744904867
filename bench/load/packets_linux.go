package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

// SendMode is how a sender of datagrams hands them to its kernel.
type SendMode uint8

// The modes. The last two send bursts.
const (
	_        SendMode = iota
	SendTo            // a system call for each, as most programs do
	SendMMsg          // a system call for burst of them, each a packet of its own in the kernel
	Segment           // UDP_SEGMENT: burst of them are one packet in the kernel, as far as it goes
)

func (m SendMode) String() string {
	switch m {
	case SendTo:
		return "sendto"
	case SendMMsg:
		return "sendmmsg"
	case Segment:
		return "segment"
	}
	return fmt.Sprintf("sendmode(%d)", uint8(m))
}

// ReceiveMode is what a receiver does when there is nothing to receive.
type ReceiveMode uint8

// The modes.
const (
	_ ReceiveMode = iota
	// Drain sleeps for 100 us. The sender then hardly ever wakes the receiver, which on a
	// virtual machine costs as much as the rest of a packet's way and varies a lot.
	Drain
	// Wait blocks, as most programs do.
	Wait
)

func (m ReceiveMode) String() string {
	switch m {
	case Drain:
		return "drain"
	case Wait:
		return "wait"
	}
	return fmt.Sprintf("receivemode(%d)", uint8(m))
}

const (
	burst = 32 // datagrams, where they are sent together
	// grace is how long after the last was sent one still counts as delivered.
	grace = 10 * time.Millisecond
	// nap is how long a sender sleeps that is ahead of its timetable. It does not spin:
	// the CPUs are also the path's.
	nap         = 50 * time.Microsecond
	receiveSize = 8 << 20 // bytes of the receiver's buffer
)

// Flow is a sender and a receiver of small datagrams. The receiver has no UDP_GRO, and
// takes what is there by recvmmsg. A Flow belongs to one goroutine.
type Flow struct {
	name     string
	out, in  int
	mode     SendMode
	receiver ReceiveMode
	size     int

	got  counter
	stop atomic.Bool
	done chan error
	mmsg []mmsghdr // of the sender
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// NewFlow opens a flow of datagrams with size bytes of payload. The caller closes it.
func NewFlow(from, to probe.Endpoint, mode SendMode, receiver ReceiveMode, size int) (*Flow, error) {
	in, at, err := socket(to, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	out, _, err := socket(from, unix.SOCK_DGRAM)
	if err != nil {
		return nil, errors.Join(err, unix.Close(in))
	}
	f := &Flow{name: from.Name + " to " + to.Name, out: out, in: in, mode: mode, receiver: receiver, size: size, done: make(chan error, 1)}
	err = errors.Join(f.tune(), unix.Connect(out, sockaddr(at)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("flow %s: %w", f.name, err), unix.Close(in), unix.Close(out))
	}
	f.mmsg = messages(make([]byte, size), burst)
	go func() { f.done <- f.receive() }() // Close waits for it
	return f, nil
}

func (f *Flow) tune() error {
	// As root beyond the system's limit; else as much as an ordinary user may have.
	if unix.SetsockoptInt(f.in, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveSize) != nil {
		_ = unix.SetsockoptInt(f.in, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveSize)
	}
	// The receiver looks now and then whether it is to stop.
	tv := unix.NsecToTimeval(int64(50 * time.Millisecond))
	err := unix.SetsockoptTimeval(f.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	if f.mode == Segment {
		err = errors.Join(err, unix.SetsockoptInt(f.out, unix.SOL_UDP, unix.UDP_SEGMENT, f.size))
	}
	return err
}

// messages are n messages that share b.
func messages(b []byte, n int) []mmsghdr {
	iov := make([]unix.Iovec, n)
	m := make([]mmsghdr, n)
	for i := range m {
		iov[i].Base = unsafe.SliceData(b)
		iov[i].SetLen(len(b))
		m[i].hdr.Iov = &iov[i]
		m[i].hdr.SetIovlen(1)
	}
	return m
}

// Close frees the sockets and returns the receiver's error.
func (f *Flow) Close() error {
	f.stop.Store(true)
	err := <-f.done
	return errors.Join(err, unix.Close(f.in), unix.Close(f.out))
}

func (f *Flow) receive() error {
	if err := onThread(AnyCPU); err != nil {
		return err
	}
	m := messages(make([]byte, f.size), 64)
	flags := uintptr(unix.MSG_WAITFORONE)
	if f.receiver == Drain {
		flags = unix.MSG_DONTWAIT
	}
	for !f.stop.Load() {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(f.in), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), flags, 0, 0)
		if errno == unix.EAGAIN && f.receiver == Drain {
			doze(2 * nap)
		}
		switch errno {
		case 0:
			f.got.n.Add(int64(n))
		case unix.EAGAIN, unix.EINTR:
		default:
			return fmt.Errorf("receive: %w", errno)
		}
	}
	return nil
}

// Trial sends at rate packets a second for a duration, and as fast as it can if rate is 0.
// When it returns, nothing of it is under way any more.
func (f *Flow) Trial(ctx context.Context, rate float64, last time.Duration) (Trial, error) {
	before := f.got.n.Load()
	var t Trial
	sent := make(chan error, 1)
	go func() { sent <- f.send(ctx, rate, last, &t) }()
	if err := <-sent; err != nil {
		return t, fmt.Errorf("flow %s: %w", f.name, err)
	}
	if err := sleep(ctx, grace); err != nil {
		return t, err
	}
	t.Received = f.got.n.Load() - before
	return t, f.quiet(ctx)
}

// quiet waits until nothing arrives any more, a second at most.
func (f *Flow) quiet(ctx context.Context) error {
	const still = 20 * time.Millisecond
	for range time.Second / still {
		n := f.got.n.Load()
		if err := sleep(ctx, still); err != nil {
			return err
		}
		if f.got.n.Load() == n {
			break
		}
	}
	return nil
}

func (f *Flow) send(ctx context.Context, rate float64, last time.Duration, t *Trial) error {
	if err := onThread(AnyCPU); err != nil {
		return err
	}
	b := make([]byte, f.size*burst)
	step := int64(burst)
	if f.mode == SendTo {
		step = 1
	}
	start := time.Now()
	for ctx.Err() == nil {
		t.Elapsed = time.Since(start)
		if t.Elapsed >= last {
			return nil
		}
		due := t.Sent + burst // the clock is asked once a burst
		if rate > 0 {
			due = int64(rate * t.Elapsed.Seconds())
		}
		if due < t.Sent+step {
			doze(nap)
			continue
		}
		for due = min(due, t.Sent+burst); t.Sent+step <= due; t.Sent += step {
			if err := retry(func() error { return f.sendOnce(b) }); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// doze sleeps in the kernel, since Go's timers are a millisecond coarse. A signal cuts it short.
func doze(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// sendOnce is one system call. What an interface's queue has no room for counts as sent:
// it is a loss like any other.
func (f *Flow) sendOnce(b []byte) (err error) {
	switch f.mode {
	case SendMMsg:
		_, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(f.out), uintptr(unsafe.Pointer(&f.mmsg[0])), uintptr(len(f.mmsg)), 0, 0, 0)
		if errno != 0 {
			err = errno
		}
	case Segment:
		_, err = unix.Write(f.out, b)
	default:
		_, err = unix.Write(f.out, b[:f.size])
	}
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}
