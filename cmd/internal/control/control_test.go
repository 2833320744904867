package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a node with fixed answers.
type fake struct {
	Upgrader
	status  Status
	leases  Leases
	err     error
	request ReleaseRequest
	podFake
}

func (f *fake) Status() Status { return f.status }
func (f *fake) Peers() Peers {
	return Peers{Peers: []Peer{{Name: "b", Traffic: &Traffic{LastSeen: time.Unix(9, 0).UTC()}}, {Name: "c"}}}
}
func (f *fake) Leases(context.Context) (Leases, error) { return f.leases, f.err }
func (f *fake) Release(_ context.Context, r ReleaseRequest) (Released, error) {
	f.request = r
	return Released{Record: Record{Node: "b"}}, f.err
}

func (f *fake) Capture(ctx context.Context, r CaptureRequest, w CaptureWriter) error {
	if f.err != nil {
		return f.err
	}
	err := w.Write(Captured{Packet: &CapturedPacket{Peer: fmt.Sprintf("%+v", r),
		Address: netip.MustParseAddr("192.0.2.2"), Data: []byte{1}}})
	w.Flush()
	if r.Count == 1 {
		return errors.New("the device\nis gone")
	}
	<-ctx.Done()
	return err
}

func (f *fake) Ask(_ context.Context, r AskRequest) (Asked, error) {
	return Asked{RTTs: make([]time.Duration, r.Count), Refused: true, Unsent: r.Address.String()}, f.err
}

func (f *fake) RotateKey(context.Context) (Rotated, error) {
	return Rotated{Before: "a", PublicKey: "b"}, f.err
}

func (f *fake) Reload(context.Context) (Reloaded, error) {
	return Reloaded{Changed: []ReloadChange{{Key: "--v", From: "0", To: "1"}}, Faults: []string{"x"}}, f.err
}

func (f *fake) Matrix(context.Context) (Matrix, error) {
	return Matrix{Full: true, Port: 8285,
		Nodes: []MatrixNode{{Name: "b", Seen: []MatrixCell{{Node: -1, Silence: SilentHeard}}}}}, f.err
}

// A daemon is not made to ask for longer, or more, than a request may take.
func TestAskIsBounded(t *testing.T) {
	c, _ := serve(t, &fake{})
	at := netip.MustParseAddr("10.42.2.0")
	a, err := c.Ask(t.Context(), AskRequest{Address: at, Count: 2, Interval: time.Second, Timeout: time.Second})
	if err != nil || len(a.RTTs) != 2 || !a.Refused || a.Unsent != at.String() {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, r := range []AskRequest{
		{Count: 0, Timeout: time.Second}, {Count: MaxAskCount + 1, Timeout: time.Second}, {Count: 1},
		{Count: 1, Timeout: MaxAsk + 1},
		{Count: 10, Interval: time.Second, Timeout: time.Second}, {Count: 2, Interval: -1, Timeout: time.Second},
		{Count: 200, Interval: 1 << 62, Timeout: 1},
	} {
		if _, err := c.Ask(t.Context(), r); !errors.Is(err, ErrRefused) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// compare lets cmp look into netip's values.
func compare(a, b any) string {
	return cmp.Diff(a, b, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y }),
		cmp.Comparer(func(x, y netip.Addr) bool { return x == y }))
}

// services are all those that a fake has.
type services interface {
	Pages
	LeaseService
	PodService
	ProbeService
	Capturer
	Reloader
	KeyService
	Upgrader
}

func serverOf(n services) Server { return Server{n, n, n, n, n, n, n, n} }

// serve runs a server for n and returns a client and the socket.
func serve(t *testing.T, n services) (*Client, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weft", "weftd.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, serverOf(n)) }() // waited for below
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}
	})
	return NewClient(path), path
}

func TestAnswersArriveWhole(t *testing.T) {
	f := &fake{
		status: Status{
			Version: "v1", NodeID: "a", Ready: true, StartedAt: time.Unix(5, 0).UTC(),
			Lease: &Lease{Subnet: netip.MustParsePrefix("10.1.2.0/24"), Held: true, Expires: time.Unix(7, 0).UTC()},
			Counters: Counters{Egress: Flow{Received: 3, Delivered: 2,
				Drops: []Drop{{Reason: "no_route", Packets: 1}}}},
		},
		leases: Leases{Source: "etcd", Leases: []Record{{Subnet: netip.MustParsePrefix("10.1.3.0/24"),
			PublicIPv6: netip.MustParseAddr("2001:db8::1"), Revision: 8}}},
	}
	c, path := serve(t, f)
	ctx := t.Context()
	if got, err := c.Status(ctx); err != nil || compare(got, f.status) != "" {
		t.Errorf("status: %v %s", err, compare(got, f.status))
	}
	if got, err := c.Peers(ctx); err != nil || compare(got, f.Peers()) != "" {
		t.Errorf("peers: %v %s", err, compare(got, f.Peers()))
	}
	if got, err := c.Leases(ctx); err != nil || compare(got, f.leases) != "" {
		t.Errorf("leases: %v %s", err, compare(got, f.leases))
	}
	if got, err := c.Matrix(ctx); err != nil ||
		compare(got, Matrix{Full: true, Port: 8285,
			Nodes: []MatrixNode{{Name: "b", Seen: []MatrixCell{{Node: -1, Silence: SilentHeard}}}}}) != "" {
		t.Errorf("matrix: %+v %v", got, err)
	}
	want := ReleaseRequest{Subnet: "10.1.3.0/24", Force: true}
	if _, err := c.Release(ctx, want); err != nil || f.request != want {
		t.Errorf("release: %v, asked for %+v", err, f.request)
	}
	for file, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o755} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want %v", file, info.Mode(), err, mode)
		}
	}
}

func TestFaultsKeepTheirMeaning(t *testing.T) {
	f := &fake{}
	c, _ := serve(t, f)
	for _, want := range []error{ErrNotFound, ErrRefused} {
		f.err = fmt.Errorf("10.1.3.0/24: %w: because", want)
		_, err := c.Release(t.Context(), ReleaseRequest{})
		if !errors.Is(err, want) || err.Error() != f.err.Error() {
			t.Errorf("got %v, want %v", err, f.err)
		}
	}
	f.err = errors.New("etcd is away")
	if _, err := c.Leases(t.Context()); err == nil || err.Error() != "etcd is away" {
		t.Errorf("got %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	h := serverOf(&fake{}).Handler()
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/v1/leases/release", `{"subnet":7}`, http.StatusBadRequest},
		{"POST", "/v1/leases/release", `{"subnet":"10.0.0.0/24","forse":true}`, http.StatusBadRequest},
		{"POST", "/v1/leases/release", `{"subnet":"` + strings.Repeat("x", 1<<17) + `"}`, http.StatusBadRequest},
		{"GET", "/v1/leases/release", "", http.StatusMethodNotAllowed},
		{"POST", "/v1/status", "", http.StatusMethodNotAllowed},
		{"GET", "/v1/nothing", "", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, uint32(0))))
		if w.Code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.want)
		}
	}
}

func TestListenReplacesOnlyAStaleSocket(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a killed daemon leaves it
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Occupied(stale); err != nil {
		t.Errorf("a stale socket: %v", err)
	}
	again, err := Listen(stale)
	if err != nil {
		t.Fatalf("a stale socket is not replaced: %v", err)
	}
	if err := Occupied(stale); err == nil || !strings.Contains(err.Error(), "another weftd") {
		t.Errorf("a live socket: %v", err)
	}
	if _, err := Listen(stale); err == nil || !strings.Contains(err.Error(), stale) ||
		!strings.Contains(err.Error(), "another weftd") {
		t.Errorf("a live socket: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file); err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("a file: %v", err)
	}
}

func TestNoDaemonSaysWhichSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := NewClient(path).Status(t.Context())
	if !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "running") {
		t.Errorf("got %v", err)
	}
}

// TestCaptureStreams has what the daemon writes arrive at once, and the daemon notice that the reader went
// away.
func TestCaptureStreams(t *testing.T) {
	f := &fake{}
	c, _ := serve(t, f)
	want := CaptureRequest{Inner: true, Peer: "b", Filter: "tcp", Count: 3, Seconds: 1.5, SnapLen: 96}
	r, err := c.Capture(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Next()
	if p := got.Packet; err != nil || p == nil || p.Peer != fmt.Sprintf("%+v", want) ||
		p.Address.String() != "192.0.2.2" || len(p.Data) != 1 {
		t.Errorf("got %+v %v", p, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r, err = c.Capture(t.Context(), CaptureRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil {
		t.Error(err)
	}
	if _, err := r.Next(); err == nil || err.Error() != "the device is gone" {
		t.Errorf("a stream that had to end: %v", err)
	}
	_ = r.Close()
	f.err = fmt.Errorf("peer x: %w", ErrNotFound)
	if _, err := c.Capture(t.Context(), want); !errors.Is(err, ErrNotFound) || err.Error() != f.err.Error() {
		t.Errorf("got %v", err)
	}
}

// TestClientsThatHangAreLetGo has a client that sends half of a request, one that asks and stays, and one
// that captures for longer than a request may take.
func TestClientsThatHangAreLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &piped{conns: make(chan net.Conn)}
		// a pipe has no caller of its own
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, uint32(os.Geteuid())))
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, l, serverOf(&fake{})) }() // ends with ctx
		ended := func(request string, want bool) {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			go func() { _, _ = io.WriteString(ours, request) }() // ends with ours
			gone := make(chan struct{})
			go func() { // ends with ours, or with theirs
				_, _ = io.Copy(io.Discard, ours)
				close(gone)
			}()
			time.Sleep(3 * requestTimeout)
			synctest.Wait()
			select {
			case <-gone:
				if !want {
					t.Errorf("%q: the connection has ended", request)
				}
			default:
				if want {
					t.Errorf("%q: the connection is still there", request)
				}
			}
			_ = ours.Close()
		}
		ended("POST /v1/leases/release HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", true)
		ended("POST /v1/capture HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", true)
		ended("GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n", true)
		ended("POST /v1/capture HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n{\"inner\":true}", false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// piped is a listener whose connections are handed to it.
type piped struct{ conns chan net.Conn }

func (p *piped) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p *piped) Close() error   { close(p.conns); return nil }
func (p *piped) Addr() net.Addr { return &net.UnixAddr{Name: "piped"} }

// TestSilentClientsMakeRoom has many that connect and say nothing: few of them are kept, and who asks is
// answered.
func TestSilentClientsMakeRoom(t *testing.T) {
	c, path := serve(t, &fake{})
	var silent []net.Conn
	for range 200 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		silent = append(silent, conn)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, conn := range silent[:len(silent)-maxSilent] {
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}
