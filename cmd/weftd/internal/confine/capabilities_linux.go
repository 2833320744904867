package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options are what has to go on working.
type Options struct {
	// Files are the directories that weftd writes to. One that its user may not write to without CAP_DAC_OVERRIDE keeps that.
	Files []string
	// OtherNamespace says that the TUN is in another network namespace, which threads enter (CAP_SYS_ADMIN).
	OtherNamespace bool
}

// Capability is the number of one, as in <linux/capability.h>.
type Capability uint

// String is its name as setpriv(1) and systemd know it.
func (c Capability) String() string {
	for _, n := range named {
		if n.c == c {
			return n.name
		}
	}
	return fmt.Sprintf("capability %d", uint(c))
}

// named are the capabilities that may be kept, and what for.
var named = [...]struct {
	c    Capability
	name string
	need func(Options) bool
}{
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", always}, // devices, addresses, routes, rules
	// A network configuration that names a port below 1024 may come at any time. CAP_NET_ADMIN can permit such ports to everyone anyway.
	{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", always},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", always},                 // packet sockets of path raw and of captures, and iptables' own socket
	{unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", always}, // reading a key that belongs to etcd's user
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", func(o Options) bool { return len(o.foreign()) > 0 }},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", func(o Options) bool { return o.OtherNamespace }},
}

func always(Options) bool { return true }

// foreign are the directories that our user may not write to by their owner and mode.
func (o Options) foreign() (dirs []string) {
	for _, d := range o.Files {
		if !writable(existing(d)) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// existing is dir, or the nearest one above it that is there, in which weftd makes the others.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// writable reports whether mode and owner let our user write to dir. Groups and access lists are not looked at: who relies
// on those keeps a capability more.
func writable(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return true // no capability of ours changes that
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if int(st.Uid) == os.Geteuid() {
		return st.Mode&0o200 != 0
	}
	return st.Mode&0o002 != 0
}

// Keep are the capabilities that weftd has need of, and what keeps those that it usually does without.
func Keep(o Options) (keep []Capability, why string) {
	for _, n := range named {
		if n.need(o) {
			keep = append(keep, n.c)
		}
	}
	if f := o.foreign(); len(f) > 0 {
		why = fmt.Sprintf("%s belongs to another user, or has no write permission for its own", strings.Join(f, ", "))
	}
	return keep, why
}

// ErrThreads says that the rights of all threads cannot be changed together, which is so in a program with cgo.
var ErrThreads = errors.New("a program that is linked with C code cannot change the rights of all its threads: make build links none")

// Drop gives up all capabilities but those in keep, in all threads and for the programs that they start, and has execve(2) give no new ones.
// A capability that the process does not have is none that it keeps. It returns those that it has from now on.
func Drop(keep []Capability) (have []Capability, err error) {
	now, _, err := capget()
	if err != nil {
		return nil, err
	}
	var kept uint64
	for _, c := range keep {
		if kept |= 1 << c & now; now&(1<<c) != 0 {
			have = append(have, c)
		}
	}
	// Without CAP_SETPCAP the bounding set stays; no_new_privs below and the user's own rights are the bounds then.
	if now&(1<<unix.CAP_SETPCAP) != 0 {
		for c := Capability(0); ; c++ {
			in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
			if err != nil {
				break // the kernel knows no further one
			}
			if in == 0 || kept&(1<<c) != 0 {
				continue
			}
			if err := prctl(unix.PR_CAPBSET_DROP, uintptr(c)); err != nil {
				return have, fmt.Errorf("take capability %d from the bounding set: %w", c, err)
			}
		}
	}
	if err := capset(kept); err != nil {
		return have, fmt.Errorf("give up capabilities: %w", err)
	}
	return have, noNewPrivileges()
}

// noNewPrivileges has execve(2) give no right that the process does not have, also by set-user-ID files.
func noNewPrivileges() error {
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}

// capset makes the set the effective and permitted one of all threads. Ambient capabilities that are not in it go with it, and
// inheritable ones, which they rest on.
func capset(set uint64) error {
	_, inheritable, err := capget()
	if err != nil {
		return err
	}
	inheritable &= set
	c := &struct {
		h unix.CapUserHeader
		d [2]unix.CapUserData
	}{h: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}} // pid 0 is the calling thread, each in its turn
	for i := range c.d {
		part := uint32(set >> (32 * i))
		c.d[i] = unix.CapUserData{Effective: part, Permitted: part, Inheritable: uint32(inheritable >> (32 * i))}
	}
	var pin runtime.Pinner // what follows knows them as numbers
	pin.Pin(c)
	defer pin.Unpin()
	return everyThread(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.h)), uintptr(unsafe.Pointer(&c.d)))
}

// capget returns the capabilities that this thread, and with it the process, may have in effect, and those that it may pass on.
func capget() (permitted, inheritable uint64, err error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, 0, fmt.Errorf("read our capabilities: %w", err)
	}
	for i, part := range d {
		permitted |= uint64(part.Permitted) << (32 * i)
		inheritable |= uint64(part.Inheritable) << (32 * i)
	}
	return permitted, inheritable, nil
}

func prctl(option int, arg uintptr) error { return everyThread(unix.SYS_PRCTL, uintptr(option), arg) }

// everyThread does a system call on all threads: capabilities are a thread's.
func everyThread(call, a, b uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(call, a, b, 0, 0, 0, 0)
	switch errno {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return ErrThreads
	}
	return errno
}
