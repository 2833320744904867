package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// These are the exit statuses besides 0. A command that weft runs for the user has its own.
const (
	exitFailure  = 1
	exitUsage    = 2
	exitNotReady = 3
)

// exitStatus is the exit status of a command that was run for the user, which has printed its errors itself.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func statusError(status int) error {
	if status == 0 {
		return nil
	}
	return exitStatus(status)
}

// withHangup returns a context that also ends when the terminal goes away.
func withHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
}

// progressTo prints each step with the time since the start.
