package ping

import (
	"context"
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
	"weft/tunnel/port"
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
			c.said(local(unix.EMSGSIZE))
			return
		case errors.As(err, &errno) && i == 0 && c.o.Said == nil:
			c.o.Said = local(errno)
		}
		if err == unix.EPERM || err == unix.EACCES || err == unix.EINVAL {
			return
		}
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
	case unix.EMSGSIZE:
		s.Kind, s.Text = diagnose.KindTooBig, "larger than the device carries"
	}
	return s
}

// kindOf is what an ICMP message means.
func kindOf(e port.SendError) diagnose.Kind {
	switch {
	case e.TooBig:
		return diagnose.KindTooBig
	case e.Why == 0, e.Why == port.UnreachableOther:
		return diagnose.KindOther
	}
	return diagnose.Kind(e.Why.String())
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
			if len(m.Data) < 16 {
				continue
			}
			errno := unix.Errno(binary.NativeEndian.Uint32(m.Data))
			if e, ok := port.ParseSendError(m.Header.Level, m.Header.Type, m.Data); !ok {
				c.said(local(errno))
			} else {
				c.said(&diagnose.Said{By: e.By, Kind: kindOf(e), Text: errno.Error()})
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
	first := &c.o.Said
	if s.Kind == diagnose.KindTooBig {
		first = &c.o.TooBig
	}
	if *first == nil {
		*first = s
	}
}

func isLocal(a netip.Addr) bool {
	all, _ := net.InterfaceAddrs() // without them no address is this host's
	return slices.ContainsFunc(all, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr() == a
	})
}
