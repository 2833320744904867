package custody

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Verb is the first argument by which a program becomes a holder; HoldArguments reads what follows.
const Verb = "holder"

// listenerFD is the descriptor at which a holder that was started finds its listener.
const listenerFD = 3

// startHolder starts this program once more as a holder, and connects to it. The holder leaves weftd's
// session and process group, so that a signal for those does not end it; it has nothing of weftd's but the
// listener, and so holds open neither its log nor its terminal.
func startHolder(ctx context.Context, path string, o Options) (*net.UnixConn, error) {
	l, err := listen(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // the holder has its own; if it does not live, nobody listens from now on
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("start a holder: %w", err)
	}
	defer func() { _ = f.Close() }() // as above
	cmd := exec.Command("/proc/self/exe", Verb, path, o.Owner, o.Timeout.String())
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", holderEnvironment(os.Environ()), []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a holder: %w", err)
	}
	go func() { _ = cmd.Wait() }() // so that it leaves no zombie; the session says that it ended
	return dial(ctx, path)
}

// holderEnvironment keeps those variables of Go's runtime that are safe to hand on. The others are weftd's
// settings, of which some are secret. One processor is enough for a process that waits.
func holderEnvironment(all []string) []string {
	env := slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name != "GODEBUG" && name != "GOCOVERDIR" && name != "GOTRACEBACK"
	})
	return append(env, "GOMAXPROCS=1", "GOGC=50")
}

// HoldArguments reads the arguments behind Verb, and takes up the listener that startHolder has handed over.
func HoldArguments(args []string) (HoldOptions, error) {
	if len(args) != 3 {
		return HoldOptions{}, errors.New("weftd starts its holder by itself, when it has something to " +
			"keep: there is nothing to do by hand (docs/operations.md)")
	}
	timeout, err := time.ParseDuration(args[2])
	if err != nil {
		return HoldOptions{}, fmt.Errorf("holder: %w", err)
	}
	f := os.NewFile(listenerFD, "listener")
	l, err := net.FileListener(f)
	if err != nil {
		return HoldOptions{}, fmt.Errorf("holder: descriptor %d is no listener: weftd starts its holder by "+
			"itself: %w", listenerFD, err)
	}
	_ = f.Close() // l has a duplicate
	u, ok := l.(*net.UnixListener)
	if !ok {
		return HoldOptions{}, errors.Join(fmt.Errorf("holder: descriptor %d is no Unix socket", listenerFD),
			l.Close())
	}
	u.SetUnlinkOnClose(false)
	return HoldOptions{Socket: args[0], Listener: u, Owner: args[1], Timeout: timeout}, nil
}
