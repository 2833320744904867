package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempts are at what a weftd in an attacker's hand would do next. Each is harmless where it succeeds: this program's caller, root with all rights, is
// whose memory is opened, and what is made in dir is removed.
func attempts(dir string) map[string]string {
	said := map[string]string{}
	try := func(what string, err error) {
		if said[what] = ""; err != nil {
			said[what] = err.Error()
		}
	}
	opens := func(name string, flags int) error {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	_, missing := os.Stat(dir)
	if missing != nil {
		dir = os.TempDir()
	}
	err := unix.Mount("none", dir, "tmpfs", 0, "")
	if err == nil {
		_ = unix.Unmount(dir, 0)
	}
	try("mount", err)
	device := filepath.Join(dir, "device")
	if err = unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err == nil {
		_ = os.Remove(device)
	}
	try("make a device", err)
	try("change the root", unix.Chroot("/"))
	try("write to the memory of a process with more rights", opens(fmt.Sprintf("/proc/%d/mem", os.Getppid()), unix.O_RDWR))
	own, err := unix.Open("/proc/self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(own, unix.CLONE_NEWUTS) // its own: nothing changes
		_ = unix.Close(own)
	}
	try("enter a namespace", err)
	try("become another user", becomes(65534))
	try("say what the kernel runs for a crash", opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY))
	// Whoever may make a user namespace has all capabilities in it.
	try("mount in a user namespace of its own", starts(&syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
	}, "/bin/mount", "-t", "tmpfs", "none", dir))
	return said
}

// errFailed says that a program was started, and did not do what it was to.
var errFailed = errors.New("it failed")

// becomes makes one thread, which ends then, another user's.
func becomes(user uintptr) error {
	said := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
			said <- errno
			return
		}
		said <- nil
	}()
	return <-said
}

// starts starts a program, without opening anything for it, and waits for its end.
func starts(how *syscall.SysProcAttr, program ...string) error {
	pid, err := syscall.ForkExec(program[0], program, &syscall.ProcAttr{Sys: how, Files: []uintptr{2, 2, 2}})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		return fmt.Errorf("%s: %#x: %w", program[0], uint32(status), errors.Join(err, errFailed))
	}
	return nil
}
