package ops

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What was not said while another process was the main one is said once this one is: a unit that has not been ready waits for it.
func TestReadinessIsSaidOnceThisIsTheMainProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	said := func() string {
		t.Helper()
		b := make([]byte, 256)
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	s := NewSystemd(slog.New(slog.DiscardHandler))
	s.Mute()
	s.Readiness([]string{"lease: not yet"})
	s.Readiness(nil)
	s.Unmute()
	if got := said(); !strings.HasPrefix(got, "READY=1\n") {
		t.Errorf("said %q first", got)
	}
	s.Successor(4711)
	s.Readiness([]string{"config: another one"})
	s.Stopping()
	if got := said(); got != "MAINPID=4711\nWATCHDOG=1" {
		t.Errorf("said %q of the successor", got)
	}
	s.Unmute()
	if got := said(); got != "STATUS=config: another one" {
		t.Errorf("said %q after that", got)
	}
}
