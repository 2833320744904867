package ops

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
	"weft/test/await"
	"weft/tunnel"
)

// counting counts the connections that are open, and the most that ever were.
type counting struct {
	net.Listener
	open, most atomic.Int32
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if n := l.open.Add(1); n > l.most.Load() {
		l.most.Store(n) // Accept is called by one goroutine
	}
	return &counted{Conn: c, close: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
}

type counted struct {
	net.Conn
	close func()
}

func (c *counted) Close() error {
	defer c.close()
	return c.Conn.Close()
}

// served runs a health server on loopback until the test ends, and returns its address.
func served(t *testing.T, h http.Handler) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, h)
}

func serveOn(t *testing.T, l net.Listener, h http.Handler) (at string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h) }() // waited for below
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// good is a node that is ready.
func good() *control.Snapshot {
	return &control.Snapshot{Compared: true, Lease: lease.Status{State: lease.Held, StoreSeen: time.Now()},
		Backend: routing.Status{InPlace: true}}
}

// connect opens a connection, sends on it, and closes it when the test ends.
func connect(t *testing.T, at, send string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return c
}

// probe asks as a kubelet does, on a connection of its own. It asks again if the server closed that
// connection in favour of dozens of others from the same address, which may come before the request.
func askPage(t *testing.T, at string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for _, path := range []string{"/healthz", "/readyz"} {
		await.OK(t, path+" is answered", func() error {
			resp, err := client.Get("http://" + at + path)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
			return nil
		})
	}
}

const ask = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

func TestConnectionsAreBoundedAndProbesGetTheirTurn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count := &counting{Listener: l}
	at := serveOn(t, count, Handler(pagesOf(good())))
	for i := range 4 * maxConns {
		connect(t, at, []string{"", "GET /healthz HT"}[i%2])
	}
	askPage(t, at)
	if n := count.most.Load(); n >= maxConns { // those that say nothing leave room for probes
		t.Errorf("%d connections at a time, want less than %d", n, maxConns)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	at := served(t, Handler(pagesOf(good())))
	for name, tt := range map[string]struct{ request, want string }{
		"header": {"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 3*maxHeader) + "\r\n\r\n",
			"431"},
		"body":         {"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", "413"},
		"chunked body": {"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "413"},
	} {
		c := connect(t, at, tt.request)
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, tt.want) {
			t.Errorf("%s: %q %v, want %s", name, line, err, tt.want)
		}
	}
}

// Clients that do not read keep no places from others: not from probes, nor from those that read the metrics.
func TestSlowReadersStarveNobody(t *testing.T) {
	t.Parallel() // for as long as an answer may take
	peers := make([]tunnel.PeerStats, 200)
	for i := range peers {
		peers[i].Name = fmt.Sprint(strings.Repeat("x", 2<<10), i) // all is more than sockets hold
	}
	s := good()
	s.Plane = &control.Plane{Peers: peers}
	at := served(t, Handler(pagesOf(s)))
	for range 3 * maxScrapes {
		connect(t, at, ask)
	}
	askPage(t, at)
	await.OK(t, "the metrics are answered", func() error {
		resp, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return errors.New(resp.Status) // until the slow ones have had their time
		}
		b, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Contains(b, []byte(`x199"} 0`)) {
			t.Errorf("%s: %d bytes", resp.Status, len(b))
		}
		return err
	})
}

// Clients that go on asking and read nothing, whatever they ask, keep no place from others.
func TestPipeliningStarvesNobody(t *testing.T) {
	for _, path := range []string{"//" + strings.Repeat("a", 7500), "/healthz", "/readyz", "/none"} {
		at := served(t, Handler(pagesOf(good())))
		request := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 20)
		var sending sync.WaitGroup
		for range 64 {
			c := connect(t, at, "")
			sending.Go(func() { // ends when the connection is closed
				for {
					if _, err := io.WriteString(c, request); err != nil {
						return
					}
				}
			})
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
		for _, page := range []string{"/healthz", "/readyz", "/metrics"} {
			for range 10 {
				resp, err := client.Get("http://" + at + page)
				if err != nil {
					t.Fatalf("beside those that ask for %.20s: %v", path, err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("beside those that ask for %.20s: %s: %s", path, page, resp.Status)
				}
			}
		}
		sending.Wait()
	}
}

// No answer says what was asked, so that nobody makes it long, and each ends its connection.
func TestAnswersAreShort(t *testing.T) {
	at := served(t, Handler(pagesOf(good())))
	for request, want := range map[string]int{
		"GET //" + strings.Repeat("a", 3000): http.StatusNotFound, "GET /healthz/": http.StatusNotFound,
		"GET /a/../healthz": http.StatusNotFound,
		"POST /healthz":     http.StatusMethodNotAllowed, "HEAD /healthz": http.StatusOK,
	} {
		c := connect(t, at, request+" HTTP/1.1\r\nHost: x\r\n\r\n")
		b, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(b), fmt.Sprint("HTTP/1.1 ", want)) || len(b) > 300 {
			t.Errorf("%.20s: %.40q, %d bytes, %v, want %d", request, b, len(b), err, want)
		}
	}
}

func TestMetricsAreForThisHostUnlessTold(t *testing.T) {
	h := OnlyHere(Handler(pagesOf(good())), "ask the operator")
	here := &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1)}
	for from, want := range map[string]int{
		"192.0.2.1:7": http.StatusForbidden, "198.51.100.1:7": http.StatusOK, "127.0.0.1:7": http.StatusOK,
		"[::ffff:127.0.0.1]:7": http.StatusOK,
	} {
		for path, want := range map[string]int{"/metrics": want, "/healthz": http.StatusOK,
			"/readyz": http.StatusOK} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr = from
			w := newRecorder()
			if h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here))); w.Code != want {
				t.Errorf("%s from %s: %d %s, want %d", path, from, w.Code, w.Body, want)
			}
		}
	}
}
