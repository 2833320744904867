package ops

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Systemd tells the service manager how the daemon is. Without NOTIFY_SOCKET it
// does nothing. It is safe for concurrent use.
type Systemd struct {
	log   *slog.Logger
	mu    sync.Mutex // protects what follows
	ready bool
	last  string
}

// NewSystemd returns a Systemd, and sends nothing yet.
func NewSystemd(log *slog.Logger) *Systemd { return &Systemd{log: log} }

// Readiness sends READY=1 once the node has started, and a STATUS line with the reasons why it is not ready
// at every change. systemd has no way back from READY.
func (s *Systemd) Readiness(reasons []string, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := "STATUS=ready"
	if len(reasons) > 0 {
		status = "STATUS=" + strings.ReplaceAll(strings.Join(reasons, "; "), "\n", "; ")
	}
	switch {
	case started && !s.ready:
		s.ready = true
		s.send(daemon.SdNotifyReady + "\n" + status)
	case status != s.last:
		s.send(status)
	}
	s.last = status
}

// Reloading tells that a reload begins, in the form that a unit with Type=notify-reload waits for. The caller
// calls done at its end. Before the first READY nothing is sent, since systemd would take the end of the
// reload for the end of the start.
func (s *Systemd) Reloading() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return func() {}
	}
	s.send(daemon.SdNotifyReloading + "\n" + strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		state := daemon.SdNotifyReady
		if s.last != "" {
			state += "\n" + s.last
		}
		s.send(state)
	}
}

// Stopping announces an asked-for stop.
func (s *Systemd) Stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(daemon.SdNotifyStopping + "\nSTATUS=stopping")
}

func (s *Systemd) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Debug("systemd was not told", "reason", err)
	}
}

// Watchdog sends WATCHDOG=1 at half the interval that systemd asks for, as long as
// alive returns true, until ctx ends. It returns at once if systemd asks for none.
func (s *Systemd) Watchdog(ctx context.Context, alive func() bool) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("systemd's watchdog is not served: its variables are wrong", "reason", err)
	}
	if err != nil || every == 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for { // the time begins with READY
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if alive() {
			s.send(daemon.SdNotifyWatchdog)
		}
	}
}
