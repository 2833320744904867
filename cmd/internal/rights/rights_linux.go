package rights

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Most is how many descriptors one message takes at the most (SCM_MAX_FD of the kernel).
const Most = 253

// errMalformed is of control messages that the kernel does not make.
var errMalformed = errors.New("malformed control message")

// Message is what one call of Receive brought.
type Message struct {
	// N is how many bytes there are.
	N int
	// FDs are the caller's, and closed on exec.
	FDs []int
	// Lost says that more descriptors were sent than there was room for, in the call or in this process
	// (RLIMIT_NOFILE). Cut says the same of bytes, where packets are received.
	Lost, Cut bool
}

// Send writes b with fds beside it, which stay the caller's. Of a socket of packets it is one.
func Send(c *net.UnixConn, b []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		err = fmt.Errorf("%d of %d bytes were sent", n, len(b))
	}
	return err
}

// Receive reads into b once, and takes up to most descriptors. The Message is as complete as it could be
// beside an error.
func Receive(c *net.UnixConn, b []byte, most int) (m Message, err error) {
	oob := make([]byte, unix.CmsgSpace(4*most))
	n, rn, flags, _, err := c.ReadMsgUnix(b, oob)
	m.N, m.Lost, m.Cut = max(n, 0), flags&unix.MSG_CTRUNC != 0, flags&unix.MSG_TRUNC != 0
	var bad error
	if m.FDs, bad = Parse(oob[:max(rn, 0)]); bad != nil {
		err = errors.Join(bad, err)
	}
	return m, err
}

// Parse returns the descriptors of control messages. Those that Go's net received are closed on exec.
func Parse(b []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, errMalformed
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		some, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, errMalformed
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

// atOnce is how many descriptors are closed at once, each by a thread of its own while the kernel lets it
// wait.
const atOnce = 16

// Close closes descriptors that were duplicates: nothing is lost with them. The last one of a packet socket
// or of a TUN waits for RCU, which takes 5 to 30 ms: those of fds wait together.
func Close(fds []int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for part := range slices.Chunk(fds, max(1, (len(fds)+atOnce-1)/atOnce)) {
		wg.Go(func() {
			for _, fd := range part {
				_ = unix.Close(fd)
			}
		})
	}
}

// Duplicate returns duplicates of fds, closed on exec.
func Duplicate(fds []int) ([]int, error) {
	var own []int
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			Close(own)
			return nil, fmt.Errorf("duplicate descriptor %d: %w", fd, err)
		}
		own = append(own, d)
	}
	return own, nil
}

// Peer returns the process at the other end of c, as this process's namespaces number processes and users.
func Peer(c syscall.Conn) (cred unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var found *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return unix.Ucred{}, cerr
	}
	if err != nil {
		return unix.Ucred{}, fmt.Errorf("ask who is at the other end: %w", err)
	}
	return *found, nil
}

// ListenPrivately listens on a Unix socket whose file is for our user alone from the moment it exists: it
// gets the mode that the descriptor has when it is bound (unix(7)). The umask, which all threads share,
// stays.
func ListenPrivately(ctx context.Context, network, path string) (*net.UnixListener, error) {
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }), err)
	}}
	l, err := private.Listen(ctx, network, path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// SameUser reports whether the process at the other end of c has our user.
func SameUser(c syscall.Conn) error {
	switch cred, err := Peer(c); {
	case err != nil:
		return err
	case int(cred.Uid) != os.Geteuid():
		return fmt.Errorf("the process at the other end is user %d's, and this one user %d's", cred.Uid,
			os.Geteuid())
	}
	return nil
}
