package holder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exec runs the command on a host of the lab, with this process's environment, working directory and standard
// files. The program is looked up in this process's $PATH.
//
// In root's lab the command takes this process's place, and Exec returns only if it could not be run. An
// ordinary user's lab has a PID namespace of its own, which only a new process can be in: there Exec passes
// signals on, waits, and returns the exit status, or 128 plus the signal's number if a signal ended the
// command.
func Exec(name, host string, args []string) (status int, err error) {
	dir, err := stateDir(name)
	if err != nil {
		return 0, err
	}
	s, pid, err := readState(dir)
	if errors.Is(err, ErrNoLab) {
		return 0, fmt.Errorf("lab %s: %w (weft lab up, weft lab list)", name, err)
	}
	if err != nil {
		return 0, fmt.Errorf("lab %s: %w", name, err)
	}
	h, err := s.host(host)
	if err != nil {
		return 0, err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return 0, err
	}
	switch same, err := sameNamespace(pid, "user"); {
	case err != nil:
		return 0, fmt.Errorf("lab %s: %w", name, err)
	case !same:
		return 0, fmt.Errorf("lab %s: enter its user namespace: %w", name, enterUser(dir, pid, host, args))
	}
	sharesPIDs, err := sameNamespace(pid, "pid")
	if err != nil {
		return 0, fmt.Errorf("lab %s: %w", name, err)
	}
	runtime.LockOSThread() // never unlocked: the thread is another host's from here on
	if err := enter(pid, h.Mounts); err != nil {
		return 0, fmt.Errorf("enter %s: %w", host, err)
	}
	env := append(os.Environ(), h.Env...)
	if sharesPIDs {
		return 0, fmt.Errorf("%s: %w", path, unix.Exec(path, args, env))
	}
	// The command dies with this process. Go's own Pdeathsig takes a parent in another PID namespace for
	// dead.
	cmd := exec.Command("setpriv", append([]string{"--pdeathsig", "KILL", "--", path}, args[1:]...)...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	signals := []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2}
	if typed := []os.Signal{unix.SIGINT, unix.SIGQUIT}; !inForeground() {
		signals = append(signals, typed...)
	} else { // the terminal gives them to the command itself, whose end this process awaits
		signal.Notify(make(chan os.Signal, 1), typed...)
	}
	if err := runPassingSignals(cmd, signals...); err != nil {
		return 0, err
	}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// inForeground says whether what is typed at a terminal, such as Ctrl-C, comes to this process's group.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// enterUser runs `weft lab exec` again inside the holder's user namespace, in this process's place. Only a
// process with one thread can enter a user namespace, which a Go program never is.
func enterUser(dir string, pid int, host string, args []string) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("%w (apt-get install util-linux)", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := []string{
		nsenter, "--user", "--preserve-credentials", fmt.Sprintf("--target=%d", pid), "--",
		self, "lab", "exec", "--lab", filepath.Base(dir), host, "--",
	}
	// Inside, the user is root, and would have another state directory.
	env := append(os.Environ(), stateEnv+"="+filepath.Dir(dir))
	return unix.Exec(nsenter, append(argv, args...), env)
}

func sameNamespace(pid int, kind string) (bool, error) {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false, err
	}
	holders, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	return own == holders, err
}

// enter moves the calling thread, which is locked, to the namespaces of a host, and what it starts to the
// holder's PID namespace. A thread of the holder lives in each host, known by its mount namespace.
func enter(holder int, mounts string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns", holder))
	if err != nil {
		return err
	}
	for _, ns := range threads {
		if its, err := os.Readlink(ns + "/mnt"); err != nil || its != mounts {
			continue
		}
		var files []*os.File
		for _, kind := range []string{"pid", "net", "mnt"} {
			// all are opened first: /proc is another one afterwards
			f, err := os.Open(ns + "/" + kind)
			if err != nil {
				return err
			}
			defer f.Close()
			files = append(files, f)
		}
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // else the mount namespace cannot be left
			return err
		}
		for _, f := range files {
			if err := unix.Setns(int(f.Fd()), 0); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
		}
		return os.Chdir(dir)
	}
	return errors.New("the lab is about to end")
}
