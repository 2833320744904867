package ops

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// These bound the connections of the health server. A probe asks at once and is answered in less than a
// millisecond. So if there are too many connections, one that has sent no request yet is closed, and not
// the new one.
const (
	maxConns     = 64
	maxPerSource = 32
)

// socketBuffer is how much of an answer the kernel may keep for a client that reads slowly, in bytes.
// The kernel's own limit is megabytes for each connection.
const socketBuffer = 64 << 10

// limited is a listener whose connections are bounded, in total and for each source address.
type limited struct {
	net.Listener
	mu    sync.Mutex
	conns []*conn // oldest first
}

// conn is a connection of a limited listener.
type conn struct {
	net.Conn
	of      *limited
	source  netip.Addr
	working int // requests that are being answered; of's lock protects it
}

// Accept closes connections for which there is no room.
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
			_ = t.SetWriteBuffer(socketBuffer) // without it the connection only takes more memory
			_ = t.SetReadBuffer(socketBuffer)
		}
		return own, nil
	}
}

// admit says whether there is room for c, and which connection, if any, has to be closed for that.
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
		// The source with the most connections gives way first.
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

// idle returns the oldest connection for which fits is true and on which no request is being answered.
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

// connKey is the key of the connection in a request's context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the request's connection, nil if it did not come by one of ours.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// sourceOf returns the client's address, the zero Addr if it has no IP address. Of an IPv6 address it
// is the /64, since one host may have all addresses in it.
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
