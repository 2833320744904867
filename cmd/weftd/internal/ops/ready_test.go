package ops

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
	"weft/test/await"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestHealthAndReadiness(t *testing.T) {
	var s control.Snapshot
	h := Handler(pagesOf(&s))
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	ready := control.Snapshot{
		Compared: true, Lease: lease.Status{State: lease.Held, StoreSeen: time.Now()},
		Backend: routing.Status{InPlace: true},
	}
	noted := ready
	noted.Missing = []string{"one\nand more", "two"}
	lost := ready
	lost.SubnetFile, lost.Backend.UnderlayLost = "x\ny", "eth0 is down"
	for _, tt := range []struct {
		path     string
		snapshot control.Snapshot
		code     int
		body     string
	}{
		{"/healthz", lost, http.StatusOK, "flanneld is running"},
		{"/readyz", ready, http.StatusOK, "flanneld is ready"}, // flannel's to the byte
		{"/readyz", noted, http.StatusOK, "flanneld is ready\nwithout one; and more\nwithout two"},
		{"/readyz", lost, http.StatusServiceUnavailable,
			"flanneld is not ready yet\nunderlay: eth0 is down\nsubnet file: x; y"},
	} {
		s = tt.snapshot
		if code, body := get(tt.path); code != tt.code || body != tt.body {
			t.Errorf("%s: %d %q, want %d %q", tt.path, code, body, tt.code, tt.body)
		}
	}
}

func TestABusyPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ap := netip.MustParseAddrPort(l.Addr().String())
	if _, err := Listen(ap.Addr(), int(ap.Port())); err == nil ||
		!strings.Contains(err.Error(), "--healthz-port") {
		t.Errorf("got %v", err)
	}
	if _, err := Listen(netip.MustParseAddr("192.0.2.77"), 0); err == nil ||
		!strings.Contains(err.Error(), "--healthz-ip") {
		t.Errorf("got %v", err)
	}
}

func TestSystemdIsToldOnceThatItIsReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	s := NewSystemd(discard())
	s.Reloading()() // not before it is ready
	s.Readiness([]string{"a", "b\nc"}, false)
	s.Readiness([]string{"silent"}, true) // by its last state
	s.Readiness([]string{"silent"}, true)
	s.Readiness(nil, true)
	s.Readiness([]string{"d"}, false)
	s.Readiness(nil, true)
	s.Readiness(nil, true)
	before := monotonic(t)
	done := s.Reloading()
	s.Readiness([]string{"e"}, false)
	done()
	s.Stopping()
	for _, want := range []string{"STATUS=a; b; c", "READY=1\nSTATUS=silent", "STATUS=ready", "STATUS=d",
		"STATUS=ready",
		"RELOADING=1\nMONOTONIC_USEC=", "STATUS=e", "READY=1\nSTATUS=e", "STOPPING=1\nSTATUS=stopping"} {
		b := make([]byte, 500)
		if err := c.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if at, ok := strings.CutPrefix(string(b[:n]), want); ok && strings.HasSuffix(want, "USEC=") {
			// systemd waits for one that is later than its SIGHUP
			if usec, err := strconv.ParseInt(at, 10, 64); err != nil || usec < before || usec > monotonic(t) {
				t.Errorf("at %q, %v: since %d", at, err, before)
			}
			continue
		}
		if err != nil || string(b[:n]) != want {
			t.Fatalf("got %q %v, want %q", b[:n], err, want)
		}
	}
}

// monotonic is the clock that systemd compares with, in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var now sys.Timespec
	if err := sys.ClockGettime(sys.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}
