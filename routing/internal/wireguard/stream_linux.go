package wireguard

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

var errMalformed = errors.New("malformed message")

// mostMessage bounds a message, in bytes; 5,000 peers are some 1.5 MB. mostSockets are how many descriptors may be beside it.
const (
	mostMessage = 64 << 20
	mostSockets = 8
)

// writeMessage writes v with descriptors beside it, which stay the caller's.
func writeMessage(c *net.UnixConn, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...)
	if len(fds) > 0 {
		n, _, err := c.WriteMsgUnix(b[:4], unix.UnixRights(fds...), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err = c.Write(b)
	return err
}

// readMessage reads one into v. The descriptors are the caller's, also beside an error.
func readMessage(c *net.UnixConn, v any) (fds []int, err error) {
	head, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(4*mostSockets))
	n, rights, _, _, err := c.ReadMsgUnix(head, oob)
	if err != nil {
		return nil, err
	}
	if fds, err = descriptors(oob[:rights]); err != nil {
		return fds, err
	}
	if _, err = io.ReadFull(c, head[n:]); err != nil {
		return fds, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > mostMessage {
		return fds, errMalformed
	}
	b := make([]byte, size)
	if _, err = io.ReadFull(c, b); err != nil {
		return fds, err
	}
	return fds, parseJSON(b, v)
}

// descriptors are those in control messages, which Go's net has closed on exec.
func descriptors(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, errMalformed
	}
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, errMalformed
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written to it
	}
}

// unixConn makes a connection of fd, which is its own from now on, also beside an error.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "unix")
	defer func() { _ = f.Close() }() // the connection has a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errMalformed, c.Close())
	}
	return u, nil
}
