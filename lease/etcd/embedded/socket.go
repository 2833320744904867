package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocket is the longest path of a Unix socket, in bytes (unix(7)).
const maxSocket = 107

// Socket is the path of the Unix socket that clients are served on if no Listen is given. It
// lies in a directory of its own, below Dir, that others can not enter.
func (c Config) Socket() string {
	dir := c.Dir
	if abs, err := filepath.Abs(dir); err == nil { // else there is no working directory
		dir = abs
	}
	return filepath.Join(dir, "client", "etcd.sock")
}

// Endpoint is the URL of Socket.
func (c Config) Endpoint() string { return "unix://" + c.Socket() }

// prepareSocket makes the socket's directory, closes it to others, and refuses to take the socket
// of a server that runs: etcd would remove it before it finds that the data are in use.
func (c Config) prepareSocket() error {
	path := c.Socket()
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
		return fmt.Errorf("embedded etcd: another one answers on %s: stop it, or give this one a directory of its own", path)
	}
	return nil
}
