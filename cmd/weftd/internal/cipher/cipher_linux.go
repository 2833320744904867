package cipher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/cmd/weftd/internal/confine"
	"weft/routing"
	"weft/routing/event"
)

// Verb is the first argument by which this program becomes a device's process; Run reads what follows.
const Verb = "wireguard"

// The descriptors that such a process finds.
const (
	lineFD = 3
	tunFD  = 4
)

// Start starts this program once more, as the process of the device of that name. It leaves weftd's process group, so that a signal
// for that does not end it, but not its session: where Linux shares processors out by session (sched_autogroup_enabled) one of its own would
// have as much as all of weftd's together, or as little, and lost half of its packets a second. It has nothing of weftd's but the two descriptors: no log, no terminal, no setting. It returns a pidfd, which is the
// caller's, or -1 where the kernel has none. But for log it is routing.WireGuardProcessOptions.Start.
func Start(log *slog.Logger, name string, line, tun *os.File) (process int, err error) {
	cmd := exec.Command("/proc/self/exe", Verb, name)
	cmd.Args[0] = "weftd" // as it is looked for: pgrep -af 'weftd wireguard'
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", environment(os.Environ()), []*os.File{line, tun}
	process = -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, PidFD: &process}
	if err := cmd.Start(); err != nil {
		return -1, err
	}
	go func() { // so that it leaves no zombie; its line says that it ended
		if err := cmd.Wait(); err != nil {
			log.Warn("the process that encrypts has ended", "event", event.DeviceRepaired, "device", name, "pid", cmd.Process.Pid, "how", err)
		}
	}()
	return process, nil
}

// environment keeps the variables of Go's runtime: the others are weftd's settings, of which some are secret.
func environment(all []string) []string {
	keep := []string{"GODEBUG", "GOCOVERDIR", "GOTRACEBACK", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GORACE"}
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.Contains(keep, name)
	})
}

var errByHand = errors.New("weftd starts the process that encrypts by itself: there is nothing to do by hand (docs/wireguard.md)")

// Run is such a process, with the arguments behind Verb, until ctx ends, which is an asked-for end, or nobody keeps it any more. It gives up
// all rights first: it opens nothing, and what it has been given needs none. What it could not give up it tells weftd, which says so.
func Run(ctx context.Context, args []string, version string) error {
	if len(args) != 1 {
		return errByHand
	}
	for _, fd := range []int{lineFD, tunFD} {
		if _, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return fmt.Errorf("%w: descriptor %d is missing", errByHand, fd)
		}
		syscall.CloseOnExec(fd)
	}
	// It has the private key in memory: no other process of this user's may trace it, and no core has it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	lacks := confine.Everything(os.Getenv("GOCOVERDIR") != "") // what is covered is written at the end
	err := routing.ServeWireGuard(ctx, routing.WireGuardServed{Device: args[0], Version: version, Lacks: lacks}, lineFD, tunFD)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
