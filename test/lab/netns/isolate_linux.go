package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Isolate makes cmd the first process of new user, mount, PID and network namespaces, in which this process's
// user is root. It has to call First.
func Isolate(cmd *exec.Cmd) {
	type ids = struct{ ContainerID, HostID, Size int }
	attr := &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	attr.UidMappings = append(attr.UidMappings, ids{0, os.Geteuid(), 1})
	attr.GidMappings = append(attr.GidMappings, ids{0, os.Getegid(), 1})
	cmd.SysProcAttr = attr
}

// OwnMounts lets nobody outside see what is mounted from now on, and makes /proc show this PID namespace.
func OwnMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// In a container whose /proc is partly masked the kernel refuses a fresh one. The old one will do:
	// its /proc/self and /proc/sys/net are right, and it only shows processes of another namespace.
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	return nil
}

// First is the work of the first process of a PID namespace. It starts cmd, passes signals on, reaps orphans,
// and returns cmd's exit status. The caller then exits, and the kernel kills whatever is left in the
// namespace.
func First(cmd *exec.Cmd) (status int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close() // only the child is to have this end open
	}
	pid := cmd.Process.Pid
	go func() { // ends with the process
		for s := range signals {
			_ = unix.Kill(pid, s.(unix.Signal))
		}
	}()
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait: %w", err)
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case got == pid && ws.Exited():
			return ws.ExitStatus(), nil
		}
	}
}
