package ops

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"weft/test/await"
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
		if err := c.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestTheWatchdogIsServed(t *testing.T) {
	said := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	s := NewSystemd(slog.New(slog.DiscardHandler))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { s.Watchdog(ctx, func() bool { return true }) })
	if got := said(); got != "WATCHDOG=1" {
		t.Errorf("said %q", got)
	}
}
