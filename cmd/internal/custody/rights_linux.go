package custody

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// send writes m with fds as one packet.
func send(c *net.UnixConn, m message, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(m.append(nil), rights, nil)
	return err
}

// errTruncated says that descriptors that came with a message are lost.
var errTruncated = errors.New("not all descriptors that were sent could be received: the process has no more free (RLIMIT_NOFILE)")

// receive reads one packet, of which b has to hold the longest. The descriptors belong to the caller, also those of a message that
// does not parse or that came in part; err is then errMalformed or errTruncated, or wraps it, and the connection can be used on. The
// message's body aliases b.
func receive(c *net.UnixConn, b []byte) (m message, fds []int, err error) {
	// One descriptor more than is allowed has room, so that too many are told from those for which there is no room.
	rights := make([]byte, unix.CmsgSpace((MaxFDs+1)*4))
	n, rn, flags, _, rerr := c.ReadMsgUnix(b, rights) // an empty packet reads as the end, also with descriptors
	if fds, err = parseRights(rights[:rn]); err == nil {
		err = rerr
	}
	if err != nil {
		return message{}, fds, err
	}
	if flags&unix.MSG_TRUNC != 0 || len(fds) > MaxFDs {
		return message{}, fds, errMalformed
	}
	m, err = parseMessage(b[:n])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errTruncated
	}
	return m, fds, err
}

// parseRights returns the descriptors of control messages. Those that Go's net received are closed on exec.
func parseRights(b []byte) (fds []int, err error) {
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

// closeAll closes descriptors that were duplicates: nothing is lost with them.
func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// duplicate returns duplicates of fds, closed on exec.
func duplicate(fds []int) ([]int, error) {
	var own []int
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			closeAll(own)
			return nil, fmt.Errorf("duplicate descriptor %d: %w", fd, err)
		}
		own = append(own, d)
	}
	return own, nil
}

// peerUID returns the user at the other end of c, as this user namespace numbers users.
func peerUID(c syscall.Conn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, fmt.Errorf("ask who is at the other end: %w", err)
	}
	return cred.Uid, nil
}

// sameUser reports whether the process at the other end of c has our user.
func sameUser(c syscall.Conn) error {
	switch uid, err := peerUID(c); {
	case err != nil:
		return err
	case int(uid) != os.Geteuid():
		return fmt.Errorf("the process at the other end is user %d's, and this one user %d's", uid, os.Geteuid())
	}
	return nil
}
