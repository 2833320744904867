package port

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Limits on reading a socket's error queue. Anyone can flood a socket with ICMP errors, and each costs the
// worker several system calls. At tens of thousands a second they would use up the worker's time before it
// reads packets. Honest senders send few: Linux one a second per destination (net.ipv4.icmp_ratelimit).
const (
	MaxErrors   = 64
	ErrorWindow = 100 * time.Millisecond
)

// errorQueue limits the errors that are read from a socket. After MaxErrors within ErrorWindow the kernel
// drops errors until the engine's next tick. The zero value is not muted.
type errorQueue struct {
	began int64 // start of the window, Unix nanoseconds; only the reader uses began and n
	n     int   // errors in the window
	muted atomic.Bool
}

// allow reports whether one more error may be read at now (Unix nanoseconds).
func (q *errorQueue) allow(now int64) bool {
	if now-q.began >= int64(ErrorWindow) || now < q.began {
		q.began, q.n = now, 0
	}
	q.n++
	return q.n <= MaxErrors
}

// setErrorQueue makes the kernel queue errors (1), or drop queued and further ones (0).
func (s *UDPSocket) setErrorQueue(on int) error {
	if s.local.Addr().Is6() {
		return unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, on)
	}
	return unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_RECVERR, on)
}

// Mute makes the kernel drop errors until Unmute.
func (s *UDPSocket) Mute() {
	if s.setErrorQueue(0) == nil { // one queued just before may still be reported
		s.errors.muted.Store(true)
	}
}

// Unmute makes the kernel queue errors again after Mute. It is safe for concurrent use.
func (s *UDPSocket) Unmute() {
	if s.errors.muted.Swap(false) {
		_ = s.setErrorQueue(1) // cannot fail where 0 did not
	}
}

// ReadErrors passes every queued error to f. It does not block. epoll reports the socket until all errors are
// read. flood means that there were too many at now (Unix nanoseconds), and that the socket is muted.
func (s *UDPSocket) ReadErrors(now int64, f func(SendError)) (flood bool) {
	var a messageArea // errors are rare, and the worker's own area is in use
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
		if !s.errors.allow(now) {
			s.Mute()
			return true
		}
		for b := a.control(); ; {
			m, rest, ok := nextControl(b)
			if !ok {
				break
			}
			if e, ok := ParseSendError(m.level, m.kind, m.data); ok {
				e.Dst = a.name.addr().Addr() // with MSG_ERRQUEUE: the datagram's destination
				f(e)
			}
			b = rest
		}
	}
}

// ParseSendError parses a control message with a struct sock_extended_err (linux/errqueue.h). It accepts only
// errors of ICMP messages, not those of the local kernel.
func ParseSendError(level, kind int32, data []byte) (SendError, bool) {
	if !(level == unix.IPPROTO_IP && kind == unix.IP_RECVERR ||
		level == unix.IPPROTO_IPV6 && kind == unix.IPV6_RECVERR) || len(data) < 16 {
		return SendError{}, false
	}
	origin := data[4]
	if origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
		return SendError{}, false
	}
	errno := unix.Errno(binary.NativeEndian.Uint32(data[0:]))
	info := binary.NativeEndian.Uint32(data[8:])
	e := SendError{TooBig: errno == unix.EMSGSIZE, MTU: int(min(info, MaxPacket)),
		Why: whyOf(origin == unix.SO_EE_ORIGIN_ICMP6, data[5], data[6])}
	switch by := data[16:]; { // SO_EE_OFFENDER
	case len(by) >= 8 && binary.NativeEndian.Uint16(by) == unix.AF_INET:
		e.By = netip.AddrFrom4([4]byte(by[4:8]))
	case len(by) >= 24 && binary.NativeEndian.Uint16(by) == unix.AF_INET6:
		e.By = netip.AddrFrom16([16]byte(by[8:24])).Unmap()
	}
	return e, true
}
