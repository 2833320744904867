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
	ExitFailure  ExitStatus = 1
	ExitUsage    ExitStatus = 2
	ExitNotReady ExitStatus = 3
)

// ExitStatus is a status with which weft ends and says no more, as all is printed.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// StatusError is err, else the status as an error; nil if it is 0.
func StatusError(status int, err error) error {
	if err != nil || status == 0 {
		return err
	}
	return ExitStatus(status)
}

// WithHangup returns a context that also ends when the terminal goes away.
func WithHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
}
