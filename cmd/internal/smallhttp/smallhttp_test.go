package smallhttp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const long = 30 * time.Second

// answering returns a socket where every request is answered with text, after which the connection is closed;
// with "" there is never an answer.
func answering(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if text == "" {
				t.Cleanup(func() { _ = conn.Close() })
				continue
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = conn.Write([]byte(text))
			}
			_ = conn.Close()
		}
	}()
	return path
}

// TestWithAServerOfNetHTTP: what net/http's server makes of our requests, and we of its answers.
func TestWithAServerOfNetHTTP(t *testing.T) {
	type echo struct{ Method, Path, Host, Body, Type string }
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			if r.URL.Path == "/refuse" {
				w.WriteHeader(http.StatusConflict)
			}
			_ = json.NewEncoder(w).Encode(echo{r.Method, r.URL.Path, r.Host, string(b), r.Header.Get("Content-Type")})
		})}}
	s.Start()
	defer s.Close()
	long := strings.Repeat("x", 1<<20) // more than a socket's buffer and than what a server sends in one piece
	for _, c := range []struct {
		what, body string
		status     int
		want       echo
	}{
		{"GET /v1/status", "", 200, echo{"GET", "/v1/status", "weftd", "", "application/json"}},
		{"POST /v1/pods/detach", `{"id":"a"}`, 200, echo{"POST", "/v1/pods/detach", "weftd", `{"id":"a"}`,
			"application/json"}},
		{"POST /refuse", long, 409, echo{"POST", "/refuse", "weftd", long, "application/json"}},
	} {
		x, err := Dial(t.Context(), path, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var got echo
		if err := x.Ask(c.what, []byte(c.body), ""); err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if err := x.Decode(&got); err != nil || got != c.want || x.Status != c.status || !x.JSON {
			t.Errorf("%s: %.200v, status %d, JSON %v, %v", c.what, got, x.Status, x.JSON, err)
		}
		x.Close()
	}
}

// TestAfterAnUpgrade: what follows a status of 101 is read from the connection, on which descriptors were
// sent.
func TestAfterAnUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err == nil && (r.ProtoMinor != 1 || r.Header.Get("Upgrade") != "weft-descriptor" ||
			r.Header.Get("Connection") != "Upgrade") {
			err = errors.New("the request asks for no upgrade")
		}
		if err == nil {
			_, err = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: weft-descriptor\r\n\r\n"))
		}
		if err == nil {
			oob := make([]byte, 100)
			var n int
			if _, n, _, _, err = conn.ReadMsgUnix(make([]byte, 1), oob); err == nil && n == 0 {
				err = errors.New("no descriptor came")
			}
		}
		if err == nil {
			_, err = conn.Write([]byte(`{"status":200}`))
		}
		served <- err
	}()
	x, err := Dial(t.Context(), path, long)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.Ask("POST /v1/pods/attach", []byte("{}"), "weft-descriptor"); err != nil || x.Status != 101 {
		t.Fatalf("status %d, %v, server: %v", x.Status, err, <-served)
	}
	if _, _, err := x.Conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(0), nil); err != nil {
		t.Fatal(err)
	}
	var a struct{ Status int }
	if err := x.Decode(&a); err != nil || a.Status != 200 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	stale := filepath.Join(t.TempDir(), "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for name, c := range map[string]struct {
		socket, want string
		limit        time.Duration
	}{
		"no socket":               {none, none, long},
		"nobody listens any more": {stale, stale, long},
		"no answer":               {answering(t, ""), "does not answer in time", 20 * time.Millisecond},
		"another protocol":        {answering(t, "SSH-2.0-x\r\n"), `answers "SSH-2.0-x"`, long},
		"no line":                 {answering(t, "\r\n"), `answers ""`, long},
		"no number":               {answering(t, "HTTP/1.0 OK\r\n\r\n{}"), `answers "HTTP/1.0 OK"`, long},
		"no end of the headers":   {answering(t, "HTTP/1.0 200 OK\r\nA: b\r\n"), "EOF", long},
		"a failure": {answering(t, "HTTP/1.0 500 Internal Server Error\r\n\r\n{}"), "500 Internal",
			long},
		"half a value":       {answering(t, "HTTP/1.0 200 OK\r\n\r\n{"), "unexpected EOF", long},
		"another value":      {answering(t, "HTTP/1.0 200 OK\r\n\r\n[]"), "array", long},
		"a line without end": {answering(t, strings.Repeat("x", MaxAnswer+100)), "EOF", long},
		"a long line": {answering(t, strings.Repeat("x", 100)+"\n"), strings.Repeat("x", 64) +
			`…"`, long},
		"a value without end": {answering(t, "HTTP/1.0 200 OK\r\n\r\n\""+strings.Repeat("x", MaxAnswer)),
			"unexpected EOF", long},
	} {
		var v struct{}
		err := Get(t.Context(), c.socket, c.limit, "/v1/status", &v)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.300v, want %q in it", name, err, c.want)
		}
		if errors.Is(err, ErrNotListening) != (c.want == none || c.want == stale) {
			t.Errorf("%s: %v, ErrNotListening %v", name, err, errors.Is(err, ErrNotListening))
		}
	}
}

// TestItEndsWithItsContext: a cancelled context ends a wait for the answer at once.
func TestItEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	x, err := Dial(ctx, answering(t, ""), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	asked := make(chan error, 1)
	go func() { asked <- x.Ask("GET /v1/status", nil, "") }()
	cancel()
	select {
	case err := <-asked:
		if err == nil {
			t.Error("there was an answer")
		}
	case <-time.After(long):
		t.Error("it still waits")
	}
}
