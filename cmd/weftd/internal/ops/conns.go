package ops

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// How many connections the health server holds. A probe is answered in less than a millisecond, so
// that a newcomer is never turned away for somebody who has not asked yet: that one goes instead.
const (
	maxConns     = 64
	maxPerSource = 32
)

// socketBuffer is what the kernel may keep of an answer for a client that reads slowly, in bytes.
// The kernel's own limit is megabytes for each connection.
const socketBuffer = 64 << 10

// limited is a listener whose connections are bounded, in total and for each source address.
type limited struct {
	net.Listener
	mu    sync.Mutex
	conns []*conn // oldest first
}

// conn is one of them.
type conn struct {
	net.Conn
	of      *limited
	source  netip.Addr
	working int // requests that are being answered; of's lock protects it
}

// Accept closes what there is no room for.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		own := &conn{Conn: c, of: l, source: sourceOf(c)}
		room, victim := l.admit(own)
		if victim != nil {
			_ = victim.Close()
		}
		if !room {
			_ = c.Close()
			continue
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetWriteBuffer(socketBuffer) // less memory is all that they are about
			_ = t.SetReadBuffer(socketBuffer)
		}
		return own, nil
	}
}

// admit makes room for c if it can, by giving up victim.
func (l *limited) admit(c *conn) (room bool, victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := map[netip.Addr]int{}
	for _, o := range l.conns {
		held[o.source]++
	}
	switch {
	case held[c.source] >= maxPerSource:
		if victim = l.idle(func(o *conn) bool { return o.source == c.source }); victim == nil {
			return false, nil
		}
	case len(l.conns) >= maxConns:
		most := 0
		for _, n := range held {
			most = max(most, n)
		}
		// Who holds most gives way first.
		victim = l.idle(func(o *conn) bool { return held[o.source] == most })
		if victim == nil {
			victim = l.idle(func(*conn) bool { return true })
		}
		if victim == nil {
			return false, nil
		}
	}
	if victim != nil {
		l.remove(victim)
	}
	l.conns = append(l.conns, c)
	return true, victim
}

// idle is the oldest connection of which fits holds and on which nothing is being answered.
func (l *limited) idle(fits func(*conn) bool) *conn {
	for _, o := range l.conns {
		if o.working == 0 && fits(o) {
			return o
		}
	}
	return nil
}

func (l *limited) remove(c *conn) {
	if i := slices.Index(l.conns, c); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// work counts a request in or out.
func (c *conn) work(n int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.working += n
}

// connKey is the connection's in a request's context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is nil for a request that came by no connection of ours.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// sourceOf is where c comes from, the zero Addr if that is no IP address. Of IPv6 it is the /64:
// a host has all of one.
func sourceOf(c net.Conn) netip.Addr {
	t, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := t.AddrPort().Addr().Unmap().WithZone("")
	if a.Is6() && !a.IsLoopback() {
		p, _ := a.Prefix(64) // 64 is within 128
		return p.Addr()
	}
	return a
}

// fromHere reports whether the client is on this host.
func (c *conn) fromHere() bool {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	to, also := c.LocalAddr().(*net.TCPAddr)
	return ok && also && (from.IP.IsLoopback() || from.IP.Equal(to.IP))
}
