package custody

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
	"weft/cmd/internal/safepath"
)

// SocketFor returns the path of the socket of the holder that belongs to a weftd with that control socket.
func SocketFor(control string) string { return control + ".holder" }

// place is the directory of a holder's socket, opened and checked, and the socket's name in it. Every call
// goes by the descriptor, so that a directory or link that takes its place later has no effect, and the path
// may be of any length.
type place struct {
	dir  *os.File
	name string
	path string // as it was given, for messages
}

// openPlace opens the directory of path. It is refused if others could put something of theirs in the
// socket's place.
func openPlace(path string) (*place, error) {
	dir := filepath.Dir(path)
	if _, err := safepath.Check(dir); err != nil {
		return nil, fmt.Errorf("somebody could pose as the holder of our descriptors: %w, or choose another "+
			"directory with --control-socket", err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &place{dir: os.NewFile(uintptr(fd), dir), name: filepath.Base(path), path: path}, nil
}

func (p *place) close() error { return p.dir.Close() }

// at is a path of the socket that leads through the descriptor of its directory.
func (p *place) at() string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.Fd(), p.name) }

// inode returns the number of the socket's file, 0 if there is none, or if what is there is no socket.
func (p *place) inode() uint64 {
	var st unix.Stat_t
	if err := unix.Fstatat(int(p.dir.Fd()), p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil ||
		st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0
	}
	return st.Ino
}

// remove removes the socket's file.
func (p *place) remove() error {
	if err := unix.Unlinkat(int(p.dir.Fd()), p.name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: p.path, Err: err}
	}
	return nil
}

// errNoHolder says that nobody listens.
var errNoHolder = errors.New("there is no holder")

// dial connects to the holder. The error wraps errNoHolder if there is none.
func (p *place) dial(ctx context.Context) (*net.UnixConn, error) {
	if p.inode() == 0 { // a link is not followed
		return nil, fmt.Errorf("%w at %s", errNoHolder, p.path)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", p.at())
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w at %s", errNoHolder, p.path)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the holder at %s: %w", p.path, err)
	}
	if err := rights.SameUser(c.(*net.UnixConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("what listens at %s is not believed to be our holder: %w", p.path, err),
			c.Close())
	}
	return c.(*net.UnixConn), nil
}

// listen makes the socket, for our user alone, in the place of one at which nobody listens. Closing the
// listener leaves the file.
func (p *place) listen(ctx context.Context) (*net.UnixListener, error) {
	if p.inode() != 0 {
		if c, err := p.dial(ctx); err == nil {
			return nil, errors.Join(fmt.Errorf("there is a holder at %s already", p.path), c.Close())
		} else if !errors.Is(err, errNoHolder) {
			return nil, err
		}
		if err := p.remove(); err != nil {
			return nil, err
		}
	}
	l, err := rights.ListenPrivately(ctx, "unixpacket", p.at())
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", p.path, err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}
