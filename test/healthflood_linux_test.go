package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/test/lab"
)

// mostAsked is what a daemon with many peers may have resident while very many ask for its metrics, in KiB.
const mostAsked = 192 << 10

// asked makes clients ask a node for its metrics at the same time, over and over, for as long as last. Each sends a
// request with header extra bytes, and reads the answer, or reads nothing and keeps the connection. It returns how many
// pages were read.
func asked(ctx context.Context, n *lab.Node, clients, header int, reads bool, last time.Duration) (pages int) {
	ctx, stop := context.WithTimeout(ctx, last)
	defer stop()
	more := make([]byte, header)
	for i := range more {
		more[i] = 'x'
	}
	// To dial takes a thread inside the namespace, and the kernel shares the CPU among threads. If all clients dialled at
	// once, the daemon's few threads would wait for hundreds of this test's.
	dialling := make(chan struct{}, 8)
	var got atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				dialling <- struct{}{}
				c, err := n.NS.Dial(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", lab.HealthPort))
				<-dialling
				if err != nil {
					continue
				}
				done := context.AfterFunc(ctx, func() { _ = c.Close() })
				_, err = fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: %s\r\n\r\n", more)
				switch {
				case err != nil: // refused
				case reads:
					if n, _ := io.Copy(io.Discard, c); n > 1<<20 {
						got.Add(1)
					}
				default:
					<-ctx.Done()
				}
				done()
				_ = c.Close()
			}
		})
	}
	all.Wait()
	return int(got.Load())
}

// manyAsk checks that, however many clients ask for the metrics, a daemon stays small, answers probes from another
// address, and its pods lose no packet.
func manyAsk(t *testing.T, l *lab.Lab, a, b *lab.Pod) {
	t.Helper()
	n := l.Node(1)
	for _, c := range []struct {
		what            string
		clients, header int
		reads           bool
	}{
		{"500 clients that read", 500, 0, true},
		{"500 clients that do not", 500, 0, false},
		{"1000 clients with 1 MiB of headers", 1000, 1 << 20, true},
	} {
		stop := pinged(t, a, b)
		sizes := sampled(t, []*lab.Node{n})
		ctx, end := context.WithCancel(t.Context())
		tries := 0
		var fault error
		var probes sync.WaitGroup
		probes.Go(func() {
			for ctx.Err() == nil && fault == nil {
				fault = probed(n)
				tries++
			}
		})
		pages := asked(t.Context(), n, c.clients, c.header, c.reads, 2*time.Second)
		end()
		probes.Wait()
		most := sizes()[0]
		size := most[len(most)-1]
		t.Logf("%s: %d KiB resident, %d pages, %d probes", c.what, size, pages, tries)
		if fault != nil {
			t.Errorf("%s: probe %d: %v", c.what, tries, fault)
		}
		if size > mostAsked {
			t.Errorf("%s: %d KiB were resident, want at most %d", c.what, size, mostAsked)
		}
		stop(c.what)
	}
}

// probed asks a node as a kubelet elsewhere would: from an address that is not the clients' one.
func probed(n *lab.Node) error {
	var c net.Conn
	if err := n.NS.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}, Timeout: 10 * time.Second}
		c, err = d.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", lab.HealthPort))
		return err
	}); err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answer, also := io.ReadAll(c)
	if err = errors.Join(err, also); err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		err = fmt.Errorf("/readyz: %q", answer)
	}
	return err
}
