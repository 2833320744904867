package ping

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/onlink"
)

// Host asks from this host: layers by sockets of its own, and other nodes' daemons by this node's.
type Host struct {
	// Weftd is this node's.
	Weftd *control.Client
}

// Neighbour implements Asker.
func (h Host) Neighbour(ctx context.Context, a netip.Addr) diagnose.Neighbour {
	return onlink.Look(ctx, []netip.Addr{a})[a]
}

// Ask implements Asker.
func (h Host) Ask(ctx context.Context, q Question) Outcome {
	switch {
	case q.Layer == diagnose.Daemon:
		return h.askDaemon(ctx, q)
	case q.By == byUDP:
		return askPort(ctx, q)
	case q.By == byIPIP:
		return askProtocol(ctx, q)
	}
	return askEcho(ctx, q)
}

// askDaemon has this node's weftd ask, in as many requests as it takes.
func (h Host) askDaemon(ctx context.Context, q Question) (o Outcome) {
	o.RTTs = make([]time.Duration, len(q.Sizes))
	timeout := min(q.Timeout, control.MaxAsk/2)
	each := control.MaxAskCount
	if q.Interval > 0 {
		each = max(1, min(each, int((control.MaxAsk-timeout)/q.Interval)))
	}
	for at := 0; at < len(o.RTTs); at += each {
		n := min(each, len(o.RTTs)-at)
		a, err := h.Weftd.Ask(ctx, control.AskRequest{Address: q.To, Count: n,
			Interval: min(q.Interval, control.MaxAsk-timeout), Timeout: timeout})
		switch {
		case errors.Is(err, control.ErrNotFound):
			return Outcome{Cannot: "this node's weftd knows of no way to ask it (any more): weft peers"}
		case err != nil:
			return Outcome{Cannot: err.Error()}
		case a.Refused:
			o.Said = &diagnose.Said{By: q.To, Kind: diagnose.KindPort}
		case a.Unsent != "" && o.Said == nil:
			o.Said = &diagnose.Said{Text: a.Unsent}
		}
		copy(o.RTTs[at:at+n], a.RTTs)
		if ctx.Err() != nil {
			break
		}
	}
	return o
}

// conversation is what goes out by sockets, and what comes back.
type conversation struct {
	q Question
	// out is the socket that sends, and that gets errors; in is where answers come in.
	out, in int
	// datagram returns the bytes of question i, and index which question an answer is for, -1 for none; it is
	// nil if nothing answers.
	datagram func(i, size int) []byte
	index    func(b []byte) int
	o        Outcome
	sentAt   []time.Time
	buffer   []byte
}

// look is how long a poll waits at the most, so that the end of the context is seen.
const look = 100 * time.Millisecond

// run sends the questions to a port, and returns when all are answered, when their time is over, or when ICMP
// has said of the first and the last the same.
func (c *conversation) run(ctx context.Context, port uint16) Outcome {
	if said := point(c.out, c.q, port); said != nil {
		return Outcome{Said: said}
	}
	n := len(c.q.Sizes)
	c.o.RTTs, c.sentAt = make([]time.Duration, n), make([]time.Time, n)
	c.buffer = make([]byte, 64<<10)
	next := time.Now()
	for sent := 0; ctx.Err() == nil; {
		now := time.Now()
		for sent < n && !now.Before(next) {
			c.send(sent)
			sent++
			next = now.Add(c.q.Interval)
		}
		var until time.Time
		if sent < n {
			until = next
		} else if until = c.sentAt[n-1].Add(c.q.Timeout); !now.Before(until) || c.o.answered() == n ||
			c.o.Said != nil && now.After(c.sentAt[n-1].Add(grace)) {
			break
		}
		c.wait(min(look, max(time.Millisecond, until.Sub(now))))
	}
	return c.o
}

// grace is how long answers are waited for once ICMP has said that there will be none.
const grace = 300 * time.Millisecond

func (c *conversation) send(i int) {
	b := c.datagram(i, c.q.Sizes[i])
	c.sentAt[i] = time.Now()
	for range 8 { // an error may be that of an earlier question: the queue has it too
		err := unix.Send(c.out, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		c.errors()
		var errno unix.Errno
		switch {
		case err == nil, errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			return
		case errors.Is(err, unix.EMSGSIZE):
			c.tooBig(&diagnose.Said{Kind: diagnose.KindTooBig, Text: "larger than the device carries"})
			return
		case errors.As(err, &errno) && i == 0 && c.o.Said == nil:
			c.o.Said = local(errno)
		}
		if err == unix.EPERM || err == unix.EACCES || err == unix.EINVAL {
			return
		}
	}
}

func (c *conversation) tooBig(s *diagnose.Said) {
	if c.o.TooBig == nil {
		c.o.TooBig = s
	}
}

// local is what this host's own kernel says.
func local(errno unix.Errno) *diagnose.Said {
	s := &diagnose.Said{Text: errno.Error()}
	switch errno {
	case unix.EHOSTUNREACH, unix.EHOSTDOWN:
		s.Kind = diagnose.KindHost
	case unix.ENETUNREACH, unix.EADDRNOTAVAIL, unix.ENETDOWN:
		s.Kind = diagnose.KindNet
	case unix.EPERM, unix.EACCES:
		s.Kind = diagnose.KindProhibited
	}
	return s
}

// mostAtOnce is how many packets are read until it is looked again whether the time is over: what comes need
// not end.
const mostAtOnce = 1000

// wait takes in what comes within d.
func (c *conversation) wait(d time.Duration) {
	fds := []unix.PollFd{{Fd: int32(c.out), Events: 0}, {Fd: int32(c.in), Events: unix.POLLIN}}
	if c.in == c.out {
		fds = fds[1:]
	}
	_, _ = unix.Poll(fds, int(d/time.Millisecond)) // whatever it says, it is looked
	c.errors()
	for range mostAtOnce {
		n, _, err := unix.Recvfrom(c.in, c.buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return
		}
		if err != nil { // the error of a question, which the queue had, or the socket is of no use
			if !c.errors() {
				return
			}
			continue
		}
		if c.index == nil {
			continue
		}
		if i := c.index(c.buffer[:n]); i >= 0 && i < len(c.sentAt) && !c.sentAt[i].IsZero() && c.o.RTTs[i] == 0 {
			c.o.RTTs[i] = max(1, time.Since(c.sentAt[i]))
		}
	}
}

// errors empties the error queue, and reports whether there was anything, there or in the socket.
func (c *conversation) errors() (some bool) {
	oob := make([]byte, 512)
	var quote [256]byte
	for range 1000 {
		_, n, _, _, err := unix.Recvmsg(c.out, quote[:], oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			break
		}
		some = true
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			continue
		}
		for _, m := range messages {
			if s, ok := parseError(m); ok {
				c.said(s)
			}
		}
	}
	if errno, err := unix.GetsockoptInt(c.out, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno != 0 {
		some = true
	}
	return some
}

func (c *conversation) said(s *diagnose.Said) {
	if c.q.Layer == diagnose.Underlay || c.q.Layer == diagnose.Port {
		// through the overlay it may be the data plane here that says so
		if isLocal(s.By) {
			s.By = netip.Addr{}
		}
	}
	switch {
	case s.Kind == diagnose.KindTooBig:
		c.tooBig(s)
	case c.o.Said == nil:
		c.o.Said = s
	}
}

func isLocal(a netip.Addr) bool {
	all, _ := net.InterfaceAddrs() // without them no address is this host's
	return slices.ContainsFunc(all, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr() == a
	})
}

// parseError reads a struct sock_extended_err with the address behind it (linux/errqueue.h).
func parseError(m unix.SocketControlMessage) (*diagnose.Said, bool) {
	four := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
	six := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
	if !four && !six || len(m.Data) < 16 {
		return nil, false
	}
	errno, origin, kind, code := unix.Errno(binary.NativeEndian.Uint32(m.Data)), m.Data[4], m.Data[5], m.Data[6]
	info := int(binary.NativeEndian.Uint32(m.Data[8:]))
	if origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
		s := local(errno)
		if errno == unix.EMSGSIZE {
			s.Kind, s.MTU = diagnose.KindTooBig, info
		}
		return s, true
	}
	s := &diagnose.Said{Kind: kindOf(six, kind, code), Text: errno.Error()}
	if s.Kind == diagnose.KindTooBig {
		s.MTU = info
	}
	switch a := m.Data[16:]; {
	case len(a) >= 8 && binary.NativeEndian.Uint16(a) == unix.AF_INET:
		s.By = netip.AddrFrom4([4]byte(a[4:8]))
	case len(a) >= 24 && binary.NativeEndian.Uint16(a) == unix.AF_INET6:
		s.By = netip.AddrFrom16([16]byte(a[8:24])).Unmap()
	}
	return s, true
}

// The kinds of ICMP messages by their codes: of type 3, destination unreachable (RFC 792, RFC 1812), and of
// ICMPv6's type 1 (RFC 4443).
var (
	kinds4 = map[byte]diagnose.Kind{
		0: diagnose.KindNet, 6: diagnose.KindNet, 11: diagnose.KindNet,
		1: diagnose.KindHost, 7: diagnose.KindHost, 12: diagnose.KindHost,
		2: diagnose.KindProtocol, 3: diagnose.KindPort, 4: diagnose.KindTooBig,
		9: diagnose.KindProhibited, 10: diagnose.KindProhibited, 13: diagnose.KindProhibited,
	}
	kinds6 = map[byte]diagnose.Kind{
		0: diagnose.KindNet, 3: diagnose.KindHost, 4: diagnose.KindPort,
		1: diagnose.KindProhibited, 5: diagnose.KindProhibited, 6: diagnose.KindProhibited,
	}
)

// kindOf reads type and code of an ICMP message.
func kindOf(six bool, kind, code byte) diagnose.Kind {
	switch {
	case six && kind == 1:
		return kinds6[code]
	case six && kind == 2:
		return diagnose.KindTooBig
	case six && kind == 3, !six && kind == 11:
		return diagnose.KindExpired
	case !six && kind == 3:
		return kinds4[code]
	}
	return diagnose.KindOther
}

// token is a number that nobody can guess.
func token() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.BigEndian.Uint64(b[:])
}
