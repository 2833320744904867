package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// These are the exit statuses besides 0. A command that weft runs for the user has its own.
const (
	ExitFailure  = 1
	ExitUsage    = 2
	ExitNotReady = 3
)

// ExitStatus is the exit status of a command that was run for the user, which has printed its errors itself.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func StatusError(status int) error {
	if status == 0 {
		return nil
	}
	return ExitStatus(status)
}

// WithHangup returns a context that also ends when the terminal goes away.
func WithHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
}

// progressTo prints each step with the time since the start.
