package etcd_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"weft/test/ports"
)

// proxy is a TCP relay that can be cut: connections are reset, and new ones refused.
type proxy struct {
	t      testing.TB
	target string
	listen string
	mu     sync.Mutex
	l      net.Listener
	conns  []net.Conn
	wg     sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	p := &proxy{t: t, target: target, listen: ports.Loopback(t).String()}
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
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		p.wg.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
}
