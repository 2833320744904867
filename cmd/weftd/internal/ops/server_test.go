package ops

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
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

func ready0() []string { return nil }

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

// probe asks as a kubelet does, on a connection of its own. It asks again if the server closed that connection in
// favour of dozens of others from the same address, which may come before the request.
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
	at := serveOn(t, count, Handler(ready0, NewRegistry(func() Snapshot { return Snapshot{} })))
	for i := range 4 * maxConns {
		connect(t, at, []string{"", "GET /healthz HT"}[i%2])
	}
	askPage(t, at)
	if n := count.most.Load(); n > maxConns+1 { // one is open while it is decided about
		t.Errorf("%d connections at a time, want at most %d", n, maxConns)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	at := served(t, Handler(ready0, NewRegistry(func() Snapshot { return Snapshot{} })))
	for name, tt := range map[string]struct{ request, want string }{
		"header":       {"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 3*maxHeader) + "\r\n\r\n", "431"},
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

// Many clients that ask at the same time cost one rendering, or a second one for those that came too late.
func TestScrapesShareARendering(t *testing.T) {
	var made atomic.Int32
	enough, begun := make(chan struct{}), make(chan struct{}, 100)
	at := served(t, Handler(ready0, NewRegistry(func() Snapshot {
		made.Add(1)
		begun <- struct{}{}
		<-enough
		return Snapshot{}
	})))
	var wg sync.WaitGroup
	var fine, refused atomic.Int32
	for range 50 {
		wg.Go(func() {
			resp, err := http.Get("http://" + at + "/metrics")
			if err != nil {
				return // gave way to another
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			switch {
			case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
				refused.Add(1)
			case resp.StatusCode == http.StatusOK && err == nil && strings.Contains(string(b), "weft_ready 0\n"):
				fine.Add(1)
			default:
				t.Errorf("%s %v", resp.Status, err)
			}
		})
	}
	<-begun
	await.OK(t, "the others are refused", func() error {
		if n := refused.Load(); n < 50-maxPerSource-maxScrapes {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	askPage(t, at)
	close(enough)
	wg.Wait()
	if n := made.Load(); n > 2 || fine.Load() == 0 {
		t.Errorf("%d renderings, %d answers, %d refused", n, fine.Load(), refused.Load())
	}
}

// Clients that do not read keep neither the places of other clients nor a page each.
func TestSlowReadersStarveNobody(t *testing.T) {
	peers := make([]tunnel.PeerStats, 200)
	for i := range peers {
		peers[i].Name = fmt.Sprint(strings.Repeat("x", 2<<10), i) // all is more than sockets hold
	}
	reg := NewRegistry(func() Snapshot { return Snapshot{Peers: peers} })
	at := served(t, Handler(ready0, reg))
	for range maxScrapesPerSource - 1 {
		c := connect(t, at, ask)
		if _, err := io.ReadFull(c, make([]byte, 100)); err != nil { // it has a page
			t.Fatal(err)
		}
	}
	reg.pages.mu.Lock()
	alive := reg.pages.alive
	reg.pages.mu.Unlock()
	if alive > maxPages {
		t.Errorf("%d pages are held, want at most %d", alive, maxPages)
	}
	askPage(t, at)
	resp, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(b, []byte(`x199"} 0`)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Clients that go on asking and read nothing, whatever they ask, keep no place from others.
func TestPipeliningStarvesNobody(t *testing.T) {
	for _, path := range []string{"//" + strings.Repeat("a", 7500), "/healthz", "/readyz", "/none"} {
		at := served(t, Handler(ready0, NewRegistry(func() Snapshot { return Snapshot{} })))
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
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
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
	at := served(t, Handler(ready0, NewRegistry(func() Snapshot { return Snapshot{} })))
	for request, want := range map[string]int{
		"GET //" + strings.Repeat("a", 3000): http.StatusNotFound, "GET /healthz/": http.StatusNotFound, "GET /a/../healthz": http.StatusNotFound,
		"POST /healthz": http.StatusMethodNotAllowed, "HEAD /healthz": http.StatusOK,
	} {
		c := connect(t, at, request+" HTTP/1.1\r\nHost: x\r\n\r\n")
		b, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(b), fmt.Sprint("HTTP/1.1 ", want)) || len(b) > 300 {
			t.Errorf("%.20s: %.40q, %d bytes, %v, want %d", request, b, len(b), err, want)
		}
	}
}

func TestMetricsAreForThisHostUnlessTold(t *testing.T) {
	h := OnlyHere(Handler(ready0, NewRegistry(func() Snapshot { return Snapshot{} })), "ask the operator")
	for from, want := range map[string]int{"192.0.2.1:7": http.StatusForbidden, "198.51.100.1:7": http.StatusOK, "127.0.0.1:7": http.StatusOK} {
		addr, err := net.ResolveTCPAddr("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		c := &conn{Conn: fakeConn{addr}, of: &limited{}}
		for path, want := range map[string]int{"/metrics": want, "/healthz": http.StatusOK, "/readyz": http.StatusOK} {
			r, err := http.NewRequestWithContext(withConn(t.Context(), c), http.MethodGet, path, nil)
			if err != nil {
				t.Fatal(err)
			}
			w := newRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s from %s: %d %s, want %d", path, from, w.Code, w.Body, want)
			}
		}
	}
}

// fakeConn is a connection to 198.51.100.1.
type fakeConn struct{ from *net.TCPAddr }

func (fakeConn) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1)} }
func (c fakeConn) RemoteAddr() net.Addr           { return c.from }
func (fakeConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (fakeConn) Write(b []byte) (int, error)      { return len(b), nil }
func (fakeConn) Close() error                     { return nil }
func (fakeConn) SetDeadline(time.Time) error      { return nil }
func (fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (fakeConn) SetWriteDeadline(time.Time) error { return nil }

func TestWhoHoldsMostGivesWay(t *testing.T) {
	l := &limited{}
	add := func(source string) (*conn, bool, *conn) {
		c := &conn{of: l, source: addrOf(source)}
		room, victim := l.admit(c)
		return c, room, victim
	}
	probe, _, _ := add("192.0.2.9") // the oldest, and the only one of its source
	var many []*conn
	for range maxPerSource {
		c, room, victim := add("192.0.2.1")
		if !room || victim != nil {
			t.Fatal("no room in an empty house")
		}
		many = append(many, c)
	}
	if _, room, victim := add("192.0.2.1"); !room || victim != many[0] {
		t.Errorf("one too many of a source: %v %p, want the place of its oldest %p", room, victim, many[0])
	}
	for range maxConns - maxPerSource - 1 {
		add("192.0.2.2")
	}
	if _, room, victim := add("192.0.2.3"); !room || victim != many[1] {
		t.Errorf("a full house: %v %p, want the place of %p", room, victim, many[1])
	}
	for _, c := range l.conns {
		c.working = 1
	}
	if _, room, victim := add("192.0.2.4"); room || victim != nil {
		t.Errorf("all are being answered: %v %p", room, victim)
	}
	probe.working = 0
	if _, room, victim := add("192.0.2.4"); !room || victim != probe {
		t.Errorf("one is idle: %v %p", room, victim)
	}
}

func TestGzipIsTheSame(t *testing.T) {
	reg := NewRegistry(func() Snapshot { return Snapshot{Version: "v1"} })
	h := Handler(ready0, reg)
	for accept, packed := range map[string]bool{"gzip": true, "deflate, gzip;q=1.0": true, "gzip;q=0": false, "gzip; q=0.0": false, "identity": false, "": false} {
		r, err := http.NewRequest(http.MethodGet, "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", accept)
		w := newRecorder()
		h.ServeHTTP(w, r)
		body := io.Reader(w.Body)
		if packed != (w.Header().Get("Content-Encoding") == "gzip") {
			t.Fatalf("%q: %v", accept, w.Header())
		}
		if packed {
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := io.ReadAll(body); err != nil || !strings.Contains(string(b), `version="v1"} 1`) {
			t.Errorf("%q: %v, %d bytes", accept, err, len(b))
		}
	}
}

// Without notes the answer is flannel's to the byte.
func TestNotesStandBelowReady(t *testing.T) {
	var notes []string
	h := Handler(ready0, NewRegistry(func() Snapshot { return Snapshot{} }), func() []string { return notes })
	for _, want := range []string{"flanneld is ready", "flanneld is ready\none; and more\ntwo"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
		notes = []string{"one\nand more", "two"}
	}
}
