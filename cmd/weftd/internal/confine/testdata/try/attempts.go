package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	try("become another user", exec.Command("setpriv", "--reuid=65534", "true").Run())
	try("say what the kernel runs for a crash", opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY))
	// Whoever may make a user namespace has all capabilities in it.
	try("mount in a user namespace of its own", exec.Command("unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", dir).Run())
	return said
}

// more are attempts at what weftd itself needs, and a process that has all that it needs open does not.
func more(said map[string]string) {
	note := func(what string, err error) {
		if said[what] = ""; err != nil {
			said[what] = err.Error()
		}
	}
	closes := func(fd int, err error) error {
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	_, err := os.ReadFile("/etc/passwd")
	note("read a file", err)
	_, err = os.ReadDir("/")
	note("list a directory", err)
	for what, family := range map[string]int{"open a socket to other programs": unix.AF_UNIX, "open a socket to other hosts": unix.AF_INET} {
		note(what, closes(unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)))
	}
	starts := func(flags uintptr) error { // without opening anything for it
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
		if err == nil {
			_, err = unix.Wait4(pid, nil, 0, nil)
		}
		return err
	}
	note("start a program", starts(0))
	note("send a signal to another process", unix.Kill(os.Getppid(), 0))
	note("take hold of another process", closes(unix.PidfdOpen(os.Getppid(), 0)))
	note("make a user namespace", starts(unix.CLONE_NEWUSER))
}
