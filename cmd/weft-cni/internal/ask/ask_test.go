package ask

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/smallhttp"
)

// socket answers every request with text, and then closes; a text of "" is never an answer.
func socket(t *testing.T, text string) string {
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
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = conn.Write([]byte(text))
			}
			_ = conn.Close()
		}
	}()
	return path
}

func TestAnswersThatAreNone(t *testing.T) {
	long := 30 * time.Second
	for _, c := range []struct {
		path, want string
		limit      time.Duration
	}{
		{filepath.Join(t.TempDir(), "none"), "running", long},
		{socket(t, ""), "answer", 20 * time.Millisecond},
		{socket(t, "HTTP/1.0 500 Internal Server Error\r\n\r\n{}"), "500 Internal", long},
		{socket(t, "SSH-2.0-x\r\n"), "SSH-2.0", long},
		{socket(t, "\r\n"), "answers", long},
		{socket(t, "HTTP/1.0 200 OK\r\nA: b\r\n"), "EOF", long},
		{socket(t, "HTTP/1.0 200 OK\r\n\r\n{"), "unexpected EOF", long},
		{socket(t, "HTTP/1.0 200 OK\r\n\r\n[]"), "array", long},
		{socket(t, strings.Repeat("x", smallhttp.MaxAnswer+100)), "ask weftd", long},
	} {
		if s, err := Daemon(context.Background(), c.path, c.limit); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %+v, %.200v, want something with %q", s, err, c.want)
		}
	}
}

// node is a daemon that has nothing but a status.
type node struct{ control.Pages }

func (node) Status() control.Status {
	return control.Status{
		Version: "v1", NotReady: []string{"no network config", strings.Repeat("long ", 100000)},
		Backend: control.Backend{Type: "udp", Path: "raw"},
	}
}

func TestDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- control.Serve(ctx, l, control.Server{Pages: node{}}) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	s, err := Daemon(ctx, path, 30*time.Second)
	if err != nil || s.Ready || s.Version != "v1" || len(s.NotReady) != 2 ||
		s.NotReady[0] != "no network config" || s.Backend != (Backend{"udp", "raw"}) {
		t.Errorf("got %.300v, %v", s, err)
	}
}
