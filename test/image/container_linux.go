package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Container is a program that runs in a root file system, with what a runtime gives to an
// unprivileged container on the host's network: a mount namespace with /proc (/proc/sys read-only), /sys
// and the usual devices, and no capabilities but those that are named. Unlike there, it has no device
// cgroup and no seccomp filter.
type Container struct {
	Root string
	// ReadOnly makes the root read-only. Each mount says for itself whether it is.
	ReadOnly bool
	Mounts   []Mount
	// Capabilities are those that the program has, as Kubernetes writes them: NET_ADMIN.
	Capabilities []string
	Args, Env    []string
	// Net is the descriptor of a network namespace, or 0 for this process's own.
	Net            int
	Stdout, Stderr io.Writer
}

// Mount is a file or folder of the host in a container.
type Mount struct {
	Source, Target string
	ReadOnly       bool
	Programs       bool // may be run, although it is read-only
}

// capabilityNumbers returns the numbers in linux/capability.h of the capabilities that manifests name.
func capabilityNumbers() map[string]uintptr {
	return map[string]uintptr{
		"DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "NET_ADMIN": unix.CAP_NET_ADMIN, "NET_RAW": unix.CAP_NET_RAW,
		"SYS_ADMIN": unix.CAP_SYS_ADMIN,
	}
}

// Run runs the program until it ends. If ctx ends, the program gets SIGTERM. Run needs root.
func (c Container) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { // waited for below
		// The thread cannot get its old namespaces and capabilities back, so it stays locked and ends with this
		// goroutine.
		runtime.LockOSThread()
		done <- c.run(ctx)
	}()
	return <-done
}

func (c Container) run(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return fmt.Errorf("prepare a container: %w", err)
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Err = nil // exec looked it up on this host, but it is in the container
	cmd.Path = c.path(c.Args[0])
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.Dir, cmd.Env = "/", c.Env
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Chroot: c.Root, Setpgid: true, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return nil // also if ctx has ended and told it to stop
	}
	return err
}

// path looks a program up in the container's PATH, as a runtime does.
func (c Container) path(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, e := range c.Env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			if _, err := os.Stat(filepath.Join(c.Root, dir, name)); err == nil {
				return filepath.Join(dir, name)
			}
		}
	}
	return name
}

// enter gives the calling thread a mount namespace with everything in place, the network
// namespace, and the bounding set, which limits the capabilities of programs that it starts.
func (c Container) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("%w: run as root", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if c.Net > 0 {
		if err := unix.Setns(c.Net, unix.CLONE_NEWNET); err != nil {
			return err
		}
	}
	if err := bind(Mount{Source: c.Root, Target: c.Root}); err != nil {
		return err
	}
	if err := c.mountKernel(); err != nil {
		return err
	}
	for _, m := range c.Mounts {
		m.Target = filepath.Join(c.Root, m.Target)
		if err := bind(m); err != nil {
			return err
		}
	}
	if c.ReadOnly {
		if err := unix.Mount("", c.Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	return c.bound()
}

// mountKernel makes /proc, /sys and /dev.
func (c Container) mountKernel() error {
	for _, dir := range []string{"proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(c.Root, dir), 0o755); err != nil {
			return err
		}
	}
	proc := filepath.Join(c.Root, "proc")
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	// Runtimes do this for a container that is not privileged: linux.readonlyPaths of the OCI specification.
	if err := bind(Mount{Source: proc + "/sys", Target: proc + "/sys", ReadOnly: true}); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", filepath.Join(c.Root, "sys"), "sysfs",
		unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("/sys: %w", err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(c.Root, "dev"), "tmpfs", unix.MS_NOSUID, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	for _, dev := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bind(Mount{Source: "/dev/" + dev, Target: filepath.Join(c.Root, "dev", dev)}); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1",
		"stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join(c.Root, "dev", name)); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts m.Source on m.Target, which it makes.
func bind(m Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if _, err := os.Stat(m.Target); err != nil {
		if err := makeTarget(m.Target, info.IsDir()); err != nil {
			return err
		}
	}
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.Source, m.Target, err)
	}
	if !m.ReadOnly {
		return nil
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	if !m.Programs {
		flags |= unix.MS_NOEXEC
	}
	return unix.Mount("", m.Target, "", flags, "")
}

func makeTarget(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// bound drops every capability that is not named from the thread's bounding set, since a program that
// root starts gets all that are in it.
func (c Container) bound() error {
	keep := map[uintptr]bool{}
	for _, name := range c.Capabilities {
		n, ok := capabilityNumbers()[name]
		if !ok {
			return fmt.Errorf("capability %s: not one that this knows", name)
		}
		keep[n] = true
	}
	for n := uintptr(0); n <= unix.CAP_LAST_CAP; n++ {
		if keep[n] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			// EINVAL: this kernel does not have that capability
			return fmt.Errorf("drop capability %d: %w", n, err)
		}
	}
	return nil
}
