package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

const (
	burst = 32 // datagrams of one system call, with Segment
	// nap is how long a sender sleeps when it is ahead of its timetable. It does not spin, because
	// the path needs the CPUs too.
	nap = 50 * time.Microsecond
)

// Sender makes datagrams, with a socket for each flow. It belongs to one goroutine.
type Sender struct {
	name  string
	mode  SendMode
	out   []int
	shots []shot
	next  int
	burst int
	b     []byte // a datagram: a tag, and zeroes; with Segment burst datagrams
	size  int    // bytes of the largest datagram
}

// NewSender opens the sockets. The caller closes the Sender.
func NewSender(from probe.Endpoint, to netip.AddrPort, t Traffic) (s *Sender, err error) {
	s = &Sender{name: fmt.Sprintf("%s to %s", from.Name, to), mode: t.Mode, shots: t.sequence(),
		size: t.Largest()}
	s.burst = min(burst, MaxPayload/s.size)
	s.b = make([]byte, s.size*s.burst)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("sender %s: %w", s.name, err), s.Close())
			s = nil
		}
	}()
	for range t.Flows {
		fd, _, err := socket(from, unix.SOCK_DGRAM, 0)
		if err != nil {
			return s, err
		}
		s.out = append(s.out, fd)
		if err := unix.Connect(fd, sockaddr(to)); err != nil {
			return s, fmt.Errorf("connect: %w", err)
		}
	}
	if t.Mode == Segment {
		if err := unix.SetsockoptInt(s.out[0], unix.SOL_UDP, unix.UDP_SEGMENT, s.size); err != nil {
			return s, fmt.Errorf("UDP_SEGMENT: %w", err)
		}
	}
	return s, nil
}

// Close frees the sockets.
func (s *Sender) Close() (err error) {
	for _, fd := range s.out {
		err = errors.Join(err, unix.Close(fd))
	}
	s.out = nil
	return err
}

// Send sends at rate packets a second for a duration, and as fast as it can if rate is 0.
// tag is in the first 8 bytes of every datagram. Sent and Elapsed of the Trial are set.
func (s *Sender) Send(ctx context.Context, tag uint64, rate float64, last time.Duration) (t Trial,
	err error) {
	for at := 0; at < len(s.b); at += s.size {
		binary.LittleEndian.PutUint64(s.b[at:], tag)
	}
	if err := onThread(AnyCPU, func() error { return s.send(ctx, rate, last, &t) }); err != nil {
		return t, fmt.Errorf("sender %s: %w", s.name, err)
	}
	return t, nil
}

func (s *Sender) send(ctx context.Context, rate float64, last time.Duration, t *Trial) error {
	step := int64(s.burst)
	if s.mode == SendTo {
		step = 1
	}
	ahead := max(step, burst)
	start := time.Now()
	for ctx.Err() == nil {
		t.Elapsed = time.Since(start)
		if t.Elapsed >= last {
			return nil
		}
		due := t.Sent + ahead // as fast as it can: the clock is read once a burst
		if rate > 0 {
			due = int64(rate * t.Elapsed.Seconds())
		}
		if due < t.Sent+step {
			doze(nap)
			continue
		}
		for due = min(due, t.Sent+ahead); t.Sent+step <= due; t.Sent += step {
			if err := retry(s.sendOnce); err != nil {
				return err
			}
			s.next++
			if s.next == len(s.shots) {
				s.next = 0
			}
		}
	}
	return context.Cause(ctx)
}

// doze sleeps by a system call, since Go's timers may be a millisecond late. A signal cuts it short.
func doze(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// sendOnce makes one system call. A datagram for which an interface's queue has no room counts as
// sent, so that it is a loss like any other.
func (s *Sender) sendOnce() (err error) {
	if s.mode == Segment {
		_, err = unix.Write(s.out[0], s.b)
	} else {
		shot := s.shots[s.next]
		_, err = unix.Write(s.out[shot.flow], s.b[:shot.payload])
	}
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return nil
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("nobody receives there: %w", err)
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("datagrams of %d bytes do not fit the interface: %w", s.size, err)
	}
	return err
}
