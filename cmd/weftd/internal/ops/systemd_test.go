package ops

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// serviceManager listens in its place. said returns what comes next.
func serviceManager(t *testing.T) (said func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // nothing was written
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
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
}

// What was not said while another process was the main one is said once this one is: a unit that has not been ready waits for it.
func TestReadinessIsSaidOnceThisIsTheMainProcess(t *testing.T) {
	said := serviceManager(t)
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

// Of a process that the service manager does not listen to it would log each word.
func TestTheWatchdogIsServedByTheMainProcess(t *testing.T) {
	said := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	s := NewSystemd(slog.New(slog.DiscardHandler))
	s.Mute()
	asked := make(chan bool)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		s.Watchdog(ctx, func() bool {
			select {
			case asked <- true:
			case <-ctx.Done():
			}
			return true
		})
	})
	for range 3 {
		<-asked
	}
	s.Readiness(nil)
	s.Unmute()
	if got := said(); got != "READY=1\nSTATUS=ready" {
		t.Errorf("said %q first", got)
	}
	for range 2 {
		<-asked
	}
	if got := said(); got != "WATCHDOG=1" {
		t.Errorf("said %q then", got)
	}
}
