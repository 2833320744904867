// Package safepath finds out who may change what a path leads to.
package safepath

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// mostLinks is how many links the kernel follows (path_resolution(7)).
	mostLinks = 40
	// unmapped is the owner that a user namespace shows for all who have no number in it (user_namespaces(7)).
	unmapped = 65534
)

// Check returns the path, without links, to which path leads. The error says that others than root and this
// process's user can write to what is there, or put something else there: by a directory above, a link on the
// way, or a directory above that. A directory that is sticky, as /tmp, lets nobody replace what is not his.
func Check(path string) (real string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return "", err
	}
	names, links, at := strings.Split(path, "/"), 0, "/"
	root, err := stat(at)
	if err != nil {
		return "", err
	}
	// In a user namespace that has no number for root, root looks like any other user from outside of it.
	ours := func(s *syscall.Stat_t) bool {
		return s.Uid == 0 || int(s.Uid) == os.Geteuid() || s.Uid == unmapped && root.Uid == unmapped
	}
	for {
		here, err := stat(at)
		if err != nil {
			return "", err
		}
		shared := here.Mode&0o022 != 0 && !readOnly(at, here)
		sticky := shared && here.Mode&(unix.S_IFMT|unix.S_ISVTX) == unix.S_IFDIR|unix.S_ISVTX
		switch {
		case !ours(here):
			return "", foreign(at, here)
		case shared && !sticky:
			return "", fmt.Errorf("%s may be written by others (mode %04o): chmod go-w %s", at, here.Mode&0o777, at)
		case len(names) == 0:
			return at, nil
		}
		next := filepath.Join(at, names[0])
		names = names[1:]
		there, err := stat(next)
		if err != nil {
			return "", err
		}
		if sticky && (!ours(there) || there.Uid == unmapped) {
			return "", foreign(next, there)
		}
		if there.Mode&unix.S_IFMT != unix.S_IFLNK {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return "", &fs.PathError{Op: "follow", Path: path, Err: unix.ELOOP}
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		names = append(strings.Split(to, "/"), names...)
		if filepath.IsAbs(to) {
			at = "/"
		}
	}
}

func foreign(at string, s *syscall.Stat_t) error {
	return fmt.Errorf("%s belongs to user %d: chown root %s", at, s.Uid, at)
}

// readOnly reports whether at is a directory that is mounted for reading alone: as a ConfigMap's volume is,
// whose mode is 0777.
func readOnly(at string, s *syscall.Stat_t) bool {
	var on unix.Statfs_t
	return s.Mode&unix.S_IFMT == unix.S_IFDIR && unix.Statfs(at, &on) == nil && on.Flags&unix.ST_RDONLY != 0
}

func stat(at string) (*syscall.Stat_t, error) {
	info, err := os.Lstat(at)
	if err != nil {
		return nil, err
	}
	return info.Sys().(*syscall.Stat_t), nil
}
