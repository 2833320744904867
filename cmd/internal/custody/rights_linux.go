package custody

import (
	"errors"
	"net"

	"weft/cmd/internal/rights"
)

// send writes m with fds as one packet.
func send(c *net.UnixConn, m message, fds []int) error { return rights.Send(c, m.bytes(), fds) }

// errTruncated says that descriptors that came with a message are lost.
var errTruncated = errors.New("not all descriptors that were sent could be received: the process has no more free (RLIMIT_NOFILE)")

// receive reads one packet, of which b has to hold the longest. The descriptors belong to the caller, also those of a message that
// does not parse or that came in part; err is then errMalformed or errTruncated, or wraps it, and the connection can be used on. The
// message's body aliases b.
func receive(c *net.UnixConn, b []byte) (m message, fds []int, err error) {
	// One descriptor more than is allowed has room, so that too many are told from those for which there is no room. An empty
	// packet reads as the end, also with descriptors.
	got, err := rights.Receive(c, b, MaxFDs+1)
	if err != nil {
		return message{}, got.FDs, err
	}
	if got.Cut || len(got.FDs) > MaxFDs {
		return message{}, got.FDs, errMalformed
	}
	m, err = parseMessage(b[:got.N])
	if err == nil && got.Lost {
		err = errTruncated
	}
	return m, got.FDs, err
}
