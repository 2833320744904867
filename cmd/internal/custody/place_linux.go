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

	"weft/cmd/internal/rights"
	"weft/cmd/internal/safepath"
)

// SocketFor returns the path of the socket of the holder that belongs to a weftd with that control socket.
func SocketFor(control string) string { return control + ".holder" }

// errNoHolder says that nobody listens.
var errNoHolder = errors.New("there is no holder")

// socketAt returns the socket's file, nil if there is none. It refuses a directory in which others could put
// something of theirs in the socket's place.
func socketAt(path string) (os.FileInfo, error) {
	dir := filepath.Dir(path)
	_, err := safepath.Check(dir) // links on the way, as /var/run is one, are as safe as it
	if info, bad := os.Lstat(dir); err == nil && bad == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = fmt.Errorf("%s is a link", dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("somebody could pose as the holder of our descriptors: %w, or choose another "+
			"directory with --control-socket", err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 { // a link is not followed
		return nil, nil
	}
	return info, nil
}

// dial connects to the holder. The error wraps errNoHolder if there is none.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	info, err := socketAt(path)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, fmt.Errorf("%w at %s", errNoHolder, path)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w at %s", errNoHolder, path)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the holder at %s: %w", path, err)
	}
	if err := rights.SameUser(c.(*net.UnixConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("what listens at %s is not believed to be our holder: %w", path, err),
			c.Close())
	}
	return c.(*net.UnixConn), nil
}

// listen makes the socket, for our user alone, in the place of one at which nobody listens. Closing the
// listener leaves the file.
func listen(ctx context.Context, path string) (*net.UnixListener, error) {
	switch c, err := dial(ctx, path); {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("there is a holder at %s already", path), c.Close())
	case !errors.Is(err, errNoHolder):
		return nil, err
	}
	if info, err := socketAt(path); err == nil && info != nil {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := rights.ListenPrivately(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}
