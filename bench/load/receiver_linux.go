package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

const (
	receiveSize = 8 << 20 // bytes of the receiver's buffer
	batch       = 64      // messages for one recvmmsg
)

// Receiver counts the datagrams that arrive at a port. It reads them with recvmmsg and without
// UDP_GRO. When there are none it sleeps for 100 us, so that a packet hardly ever has to wake it: that costs
// as much on a virtual machine as everything else that a packet takes, and varies a lot. Its methods may be
// called from any goroutine.
type Receiver struct {
	fd int
	at netip.AddrPort

	mu  sync.Mutex // protects tag, and keeps count from adding to got what has an earlier tag
	tag uint64
	got atomic.Int64 // datagrams with the tag
	all atomic.Int64

	stop atomic.Bool
	done chan error
}

// NewReceiver opens a socket at port of the endpoint, or at any free port if port is 0, for datagrams of
// up to size bytes of payload; longer ones are counted too, and cut off. The caller closes it.
func NewReceiver(to probe.Endpoint, port uint16, size int) (*Receiver, error) {
	fd, at, err := socket(to, unix.SOCK_DGRAM, port)
	if err != nil {
		return nil, err
	}
	r := &Receiver{fd: fd, at: at, done: make(chan error, 1)}
	// Root may have a buffer beyond the system's limit; an ordinary user gets as much as the limit allows.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveSize) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveSize)
	}
	size = max(size, MinPayload)
	go func() { // Close waits for it
		r.done <- onThread(AnyCPU, func() error { return r.receive(make([]byte, batch*size), size) })
	}()
	return r, nil
}

// Addr returns the address and the port of the socket.
func (r *Receiver) Addr() netip.AddrPort { return r.at }

// Expect begins to count the datagrams with that tag, from 0.
func (r *Receiver) Expect(tag uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tag = tag
	r.got.Store(0)
}

// Count returns how many datagrams with the expected tag have arrived.
func (r *Receiver) Count() int64 { return r.got.Load() }

// Quiet waits until nothing arrives any more, a second at most.
func (r *Receiver) Quiet(ctx context.Context) error {
	const still = 20 * time.Millisecond
	for range time.Second / still {
		n := r.all.Load()
		if err := Sleep(ctx, still); err != nil {
			return err
		}
		if r.all.Load() == n {
			break
		}
	}
	return nil
}

// Close frees the socket and returns the error with which receiving ended, if any.
func (r *Receiver) Close() error {
	r.stop.Store(true)
	return errors.Join(<-r.done, unix.Close(r.fd))
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// messages returns as many messages of size bytes as lie in b one after the other.
func messages(b []byte, size int) []mmsghdr {
	iov, m := make([]unix.Iovec, len(b)/size), make([]mmsghdr, len(b)/size)
	for i := range m {
		iov[i].Base = &b[i*size]
		iov[i].SetLen(size)
		m[i].hdr.Iov = &iov[i]
		m[i].hdr.SetIovlen(1)
	}
	return m
}

func (r *Receiver) receive(b []byte, size int) error {
	m := messages(b, size)
	for !r.stop.Load() {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&m[0])),
			uintptr(len(m)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			r.count(b, size, m[:n])
		case unix.EAGAIN:
			doze(2 * nap)
		case unix.EINTR:
		default:
			return fmt.Errorf("receive: %w", errno)
		}
	}
	return nil
}

// count counts a batch, whose message i is at b[i*size:].
func (r *Receiver) count(b []byte, size int, m []mmsghdr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := int64(0)
	for i := range m {
		if m[i].len >= MinPayload && binary.LittleEndian.Uint64(b[i*size:]) == r.tag {
			got++
		}
	}
	r.all.Add(int64(len(m)))
	r.got.Add(got)
}
