// Package notify receives what the kernel multicasts on a netlink protocol: changes of links and routes,
// or of firewall rules.
package notify

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// buffer is the socket's receive buffer in bytes. The kernel charges about 1 KB a message, so
// some 2,000 of them fit.
const buffer = 2 << 20

// Socket is one subscription, in the network namespace of the thread that opened it.
type Socket struct {
	s      *nl.NetlinkSocket
	closed atomic.Bool // the socket's own error after Close is not os.ErrClosed
}

// Open subscribes to groups of a netlink protocol (NETLINK_ROUTE, NETLINK_NETFILTER). The caller closes it.
func Open(protocol int, groups ...uint) (*Socket, error) {
	s, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return nil, err
	}
	out := &Socket{s: s}
	if s.SetReceiveBufferSize(buffer, true) != nil {
		_ = out.Limit(buffer)
	}
	return out, nil
}

// Limit sets the size of the receive buffer in bytes, within rmem_max and the kernel's minimum. Without
// CAP_NET_ADMIN in the first user namespace no more is possible.
func (s *Socket) Limit(bytes int) error { return s.s.SetReceiveBufferSize(bytes, false) }

// Close ends Run, which then returns nil. It may be called again, and by any goroutine.
func (s *Socket) Close() {
	if !s.closed.Swap(true) {
		s.s.Close()
	}
}

// Run calls received with the messages as they come, until Close. After the kernel had to drop some, it
// calls received with none, which means that anything may have changed. received must not block, and may
// keep the messages.
func (s *Socket) Run(received func([]syscall.NetlinkMessage)) error {
	for {
		msgs, from, err := s.s.Receive()
		switch {
		case err != nil && s.closed.Load():
			return nil
		case errors.Is(err, unix.ENOBUFS):
			received(nil)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			return fmt.Errorf("receive netlink notifications: %w", err)
		case from.Pid != nl.PidKernel: // another process may send to the socket as well
		case len(msgs) > 0:
			received(msgs)
		}
	}
}
