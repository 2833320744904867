package port

import "golang.org/x/sys/unix"

// verdictOf sets the packet's verdict from the errno of a write.
func (p *Packet) verdictOf(errno unix.Errno) {
	switch errno {
	case 0:
		p.Delivered()
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		p.Drop(DropBusy) // a queue stayed full
	case unix.EMSGSIZE:
		p.Drop(DropTooBig) // the link's MTU is smaller than was known
	case unix.EBADF, unix.EBADFD, unix.EIO:
		p.Drop(DropClosed) // the device was deleted or is down
	case unix.EINVAL:
		p.Drop(DropMalformed) // a TUN rejects data that is no IP packet
	default: // EPERM (a firewall), ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL …
		p.Drop(DropUnderlay)
	}
}

// isQueuedError reports whether errno may come from an ICMP message about an earlier datagram (IP_RECVERR).
// Then the call itself did nothing, and must be repeated.
func isQueuedError(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EMSGSIZE,
		unix.EPROTO, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.EACCES, unix.EOPNOTSUPP, unix.ENONET:
		return true
	}
	return false
}
