package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrInUse is for a socket on which another server answers.
var ErrInUse = errors.New("in use")

// prepareSocket makes the directory of the socket at path, closes it to others, and refuses to take the socket
// of a server that runs: etcd would remove it before it finds that the data are in use.
func prepareSocket(path string) error {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("embedded etcd: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("embedded etcd: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("embedded etcd: %s is not a directory of this user: remove it", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("embedded etcd: %w", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close() // nothing was sent
		return fmt.Errorf("embedded etcd: %w: another one answers on %s: stop it, or give this one a directory of its own", ErrInUse, path)
	}
	return nil
}
