package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Options are what has to go on working.
type Options struct {
	// Files are the directories that weftd writes to. One that its user may not write to without
	// CAP_DAC_OVERRIDE keeps that.
	Files []string
	// OtherNamespace says that the TUN is in another network namespace, which threads enter (CAP_SYS_ADMIN).
	OtherNamespace bool
}

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

// writable reports whether mode and owner let our user write to dir. Groups and access lists are not looked
// at: a user that relies on those keeps a capability more.
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
func Keep(o Options) (keep []cap.Value, why string) {
	keep = []cap.Value{
		cap.NET_ADMIN, // devices, addresses, routes, rules
		// A network configuration that names a port below 1024 may come at any time. CAP_NET_ADMIN can permit
		// such ports to everyone anyway.
		cap.NET_BIND_SERVICE,
		cap.NET_RAW,         // packet sockets of path raw and of captures, and iptables' own socket
		cap.DAC_READ_SEARCH, // reading a key that belongs to etcd's user
	}
	if f := o.foreign(); len(f) > 0 {
		keep = append(keep, cap.DAC_OVERRIDE)
		why = fmt.Sprintf("%s belongs to another user, or has no write permission for its own",
			strings.Join(f, ", "))
	}
	if o.OtherNamespace {
		keep = append(keep, cap.SYS_ADMIN)
	}
	return keep, why
}

// Drop gives up all capabilities but those in keep, in all threads and for the programs that they start, and
// has execve(2) give no new ones, also by set-user-ID files. It returns those that the process has from now
// on: one that it did not have is none that it keeps.
func Drop(keep []cap.Value) (have []cap.Value, err error) {
	now, next := cap.GetProc(), cap.NewSet()
	has := func(f cap.Flag, v cap.Value) bool {
		on, err := now.GetFlag(f, v)
		return err == nil && on
	}
	for _, v := range keep {
		if !has(cap.Permitted, v) {
			continue
		}
		have = append(have, v)
		err = errors.Join(err, next.SetFlag(cap.Permitted, true, v), next.SetFlag(cap.Effective, true, v))
		if has(cap.Inheritable, v) { // what ambient ones rest on
			err = errors.Join(err, next.SetFlag(cap.Inheritable, true, v))
		}
	}
	// Without CAP_SETPCAP the bounding set stays; no_new_privs below and the user's own rights are the bounds
	// then.
	if has(cap.Effective, cap.SETPCAP) {
		for v := cap.Value(0); v < cap.MaxBits(); v++ {
			if in, fault := cap.GetBound(v); fault == nil && in && !slices.Contains(have, v) {
				err = errors.Join(err, cap.DropBound(v))
			}
		}
	}
	if err == nil {
		err = next.SetProc()
	}
	if err != nil {
		return have, fmt.Errorf("give up capabilities: %w", err)
	}
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return have, fmt.Errorf("no_new_privs: %w", err)
	}
	return have, nil
}
