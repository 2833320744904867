package holder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// roleEnv tells a process that this program has started from itself which part it plays.
const roleEnv = "WEFT_LAB_ROLE"

const (
	roleInit     = "init"     // process 1 of the new pid namespace, which mounts, starts the other and reaps
	roleIsolated = "isolated" // does what the user asked for, as root of the user namespace
)

// NeedsIsolation says whether this process has to call Isolated before it can make a lab: if an ordinary
// user runs it, or anybody who asks for it with rootless, and it is not isolated already.
func NeedsIsolation(rootless bool) bool {
	return os.Getenv(roleEnv) != roleIsolated && (rootless || os.Geteuid() != 0)
}

// Isolated runs this program again, with the same arguments, inside new user, mount, pid
// and network namespaces, where it is root, and returns its exit status. It shares standard input and
// outputs, and gets the signals of this process. If this process dies, everything inside is killed.
func Isolated() (status int, err error) {
	runtime.LockOSThread() // the parent-death signal is tied to this thread
	defer runtime.UnlockOSThread()
	cmd, err := isolatedSelf()
	if err != nil {
		return 0, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C at the terminal comes once, through us
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	err = runPassingSignals(cmd, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	switch {
	case cmd.Process == nil:
		return 0, explainRefusal(err)
	case err != nil:
		return 0, err
	case cmd.ProcessState.ExitCode() < 0:
		return 0, fmt.Errorf("the process in the user namespace: %v", cmd.ProcessState)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// isolatedSelf is the command for Isolated and Launch. Its process is roleInit.
func isolatedSelf() (*exec.Cmd, error) {
	cmd, err := self()
	if err != nil {
		return nil, err
	}
	// Inside, the user is root, and would have another state directory.
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, roleEnv+"="+roleInit, stateEnv+"="+root)
	netns.Isolate(cmd)
	return cmd, nil
}

func self() (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Env = os.Environ()
	return cmd, nil
}

// runPassingSignals starts cmd, passes those signals on to it, and waits. How it ended is in
// cmd.ProcessState.
func runPassingSignals(cmd *exec.Cmd, which ...os.Signal) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, which...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // waited for below
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-done:
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return nil
			}
			return err
		}
	}
}

// Init does the work of a process that Isolated or Launch started as the first of its
// pid namespace. The caller then exits with status. In every other process Init does nothing, and is
// is false.
func Init() (is bool, status int, err error) {
	if os.Getenv(roleEnv) != roleInit {
		return false, 0, nil
	}
	if err := netns.OwnMounts(); err != nil {
		return true, 0, explainRefusal(err)
	}
	cmd, err := self()
	if err != nil {
		return true, 0, err
	}
	cmd.Env = append(cmd.Env, roleEnv+"="+roleIsolated)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Getenv(statusEnv) != "" {
		cmd.ExtraFiles = []*os.File{os.NewFile(statusFD, "status")}
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	status, err = netns.First(cmd)
	return true, status, err
}

// explainRefusal adds to an error of making namespaces what the administrator can do about it.
func explainRefusal(err error) error {
	remedy := "run it as root, or allow user namespaces on this machine (user_namespaces(7)); a container may " +
		"need --privileged or another seccomp profile"
	for _, knob := range []struct{ file, bad, good string }{
		{"kernel/unprivileged_userns_clone", "0", "1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
		{"user/max_user_namespaces", "0", "10000"},
	} {
		b, readErr := os.ReadFile("/proc/sys/" + knob.file)
		if readErr == nil && strings.TrimSpace(string(b)) == knob.bad {
			remedy = fmt.Sprintf("run it as root, or: sudo sysctl %s=%s", strings.ReplaceAll(knob.file, "/", "."),
				knob.good)
			break
		}
	}
	return fmt.Errorf("an ordinary user's lab needs user namespaces, which are refused here: %w; %s",
		err, remedy)
}
