package port

import "golang.org/x/sys/unix"

// verdictOf turns the errno of a write into the packet's verdict.
func (p *Packet) verdictOf(errno unix.Errno) {
	switch errno {
	case 0:
		p.Delivered()
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		p.Drop(DropBusy) // a queue stayed full
	case unix.EMSGSIZE:
		p.Drop(DropTooBig) // the link's MTU is smaller than we knew
	case unix.EBADF, unix.EBADFD, unix.EIO:
		p.Drop(DropClosed) // the device was deleted, or is down
	case unix.EINVAL:
		p.Drop(DropMalformed) // a TUN refuses what is no IP packet
	default: // EPERM (a firewall), ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL …
		p.Drop(DropUnderlay)
	}
}

// isQueuedError says whether a socket call returned an error that an ICMP message
// had left on the socket (IP_RECVERR), about a datagram sent earlier. The call
// itself did nothing, and is to be repeated.
func isQueuedError(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EMSGSIZE,
		unix.EPROTO, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.EACCES, unix.EOPNOTSUPP, unix.ENONET:
		return true
	}
	return false
}
