package port

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Anybody can have a socket flooded with errors, and each costs the worker that reads it several system
// calls: with tens of thousands a second it has used up its share of a busy processor before packets have
// their turn. Whoever sends such messages in earnest sends few: Linux one a second about one destination
// (net.ipv4.icmp_ratelimit).
const (
	MostErrors  = 64
	ErrorWindow = 100 * time.Millisecond
)

// errorQueue bounds what is read of a socket's errors: after MostErrors within ErrorWindow the kernel is
// told to drop what comes until the engine's next tick. The zero value hears.
type errorQueue struct {
	began int64 // of the window, Unix nanoseconds; like n it is the reader's
	n     int   // errors in it
	muted atomic.Bool
}

// may reports whether one more error may be taken in at now (Unix nanoseconds).
func (q *errorQueue) may(now int64) bool {
	if now-q.began >= int64(ErrorWindow) || now < q.began {
		q.began, q.n = now, 0
	}
	q.n++
	return q.n <= MostErrors
}

// queueErrors has the kernel keep the errors that come (1), or drop them and those that it has (0).
func (s *UDPSocket) queueErrors(on int) error {
	if s.local.Addr().Is6() {
		return unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, on)
	}
	return unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_RECVERR, on)
}

// Mute has the kernel keep no errors until Hear.
func (s *UDPSocket) Mute() {
	if s.queueErrors(0) == nil { // one that came between may be reported while nothing is heard
		s.errors.muted.Store(true)
	}
}

// Hear has errors queued again after a flood. Any goroutine may call it.
func (s *UDPSocket) Hear() {
	if s.errors.muted.Swap(false) {
		_ = s.queueErrors(1) // it has taken the 0
	}
}

// ReadErrors hands every queued error to f, without blocking: epoll reports the socket until they are read.
// flood says that there were too many at now (Unix nanoseconds), and that the rest is dropped, with what
// comes in the next moments.
func (s *UDPSocket) ReadErrors(now int64, f func(SendError)) (flood bool) {
	var a messageArea // errors are rare, and a worker's own area is in use
	var quote [64]byte
	a.init()
	for {
		a.payload(quote[:])
		_, errno := a.recvmsg(s.fd, unix.MSG_ERRQUEUE)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return false
		}
		if !s.errors.may(now) {
			s.Mute()
			return true
		}
		for b := a.control(); ; {
			m, rest, ok := nextControl(b)
			if !ok {
				break
			}
			if e, ok := parseSendError(m); ok {
				e.Dst = a.name.addr().Addr() // with MSG_ERRQUEUE: where the datagram was going
				f(e)
			}
			b = rest
		}
	}
}

// parseSendError reads a struct sock_extended_err (linux/errqueue.h). Only what
// an ICMP message said counts, not what our own kernel did.
func parseSendError(m controlMessage) (SendError, bool) {
	if !(m.level == unix.IPPROTO_IP && m.kind == unix.IP_RECVERR || m.level == unix.IPPROTO_IPV6 &&
		m.kind == unix.IPV6_RECVERR) ||
		len(m.data) < 16 {
		return SendError{}, false
	}
	origin := m.data[4]
	if origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
		return SendError{}, false
	}
	errno := unix.Errno(binary.NativeEndian.Uint32(m.data[0:]))
	info := binary.NativeEndian.Uint32(m.data[8:])
	e := SendError{TooBig: errno == unix.EMSGSIZE, MTU: int(min(info, MaxPacket)),
		Why: whyOf(origin == unix.SO_EE_ORIGIN_ICMP6, m.data[5], m.data[6])}
	switch by := m.data[16:]; { // SO_EE_OFFENDER
	case len(by) >= 8 && binary.NativeEndian.Uint16(by) == unix.AF_INET:
		e.By = netip.AddrFrom4([4]byte(by[4:8]))
	case len(by) >= 24 && binary.NativeEndian.Uint16(by) == unix.AF_INET6:
		e.By = netip.AddrFrom16([16]byte(by[8:24])).Unmap()
	}
	return e, true
}
