package etcd_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"weft/test/ports"
)

// proxy is a TCP relay that can be cut: connections are reset, and new ones refused. With a delay the
// target's bytes are that late.
type proxy struct {
	t      testing.TB
	delay  time.Duration
	target string
	listen string
	mu     sync.Mutex
	l      net.Listener
	conns  []net.Conn
	wg     sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	return newSlowProxy(t, target, 0)
}

func newSlowProxy(t testing.TB, target string, delay time.Duration) *proxy {
	t.Helper()
	p := &proxy{t: t, delay: delay, target: target, listen: ports.Loopback(t).String()}
	p.mend()
	t.Cleanup(p.cut)
	return p
}

func (p *proxy) addr() string { return p.listen }

func (p *proxy) cut() {
	p.mu.Lock()
	_ = p.l.Close()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) mend() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.listen)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.l = l
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.relay(in)
		}
	})
}

func (p *proxy) relay(in net.Conn) {
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = in.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, in, out)
	p.mu.Unlock()
	closed := make(chan struct{}) // by either side
	once := sync.OnceFunc(func() { close(closed) })
	for _, copied := range []func(){
		func() { _, _ = io.Copy(out, in) },
		func() { late(in, out, p.delay, closed) },
	} {
		p.wg.Go(func() {
			copied()
			_ = in.Close()
			_ = out.Close()
			once()
		})
	}
}

// late copies from to to, each byte after delay, until either fails or closed is closed.
func late(to io.Writer, from io.Reader, delay time.Duration, closed <-chan struct{}) {
	type piece struct {
		at time.Time
		b  []byte
	}
	pieces := make(chan piece, 1000)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(delay), b[:n]}
		}
	}()
	for p := range pieces {
		select {
		case <-time.After(time.Until(p.at)):
		case <-closed:
		}
		if _, err := to.Write(p.b); err != nil {
			return
		}
	}
}
