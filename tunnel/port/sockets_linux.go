package port

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// sockets are the UDP sockets of an underlay: those that share the tunnel's port and receive, and one for
// each lane, which only sends. They move runs of datagrams in one system call. sockets is safe for concurrent
// use.
type sockets struct {
	local netip.AddrPort
	log   *slog.Logger
	group []*UDPSocket // share the tunnel's port; at least one
	lanes []*UDPSocket
	gro   OffloadSwitch
	// requested are the numbers of queues and lanes that were requested. There may be fewer.
	requested [2]int
	head      int // bytes of the format's header before the inner packet
}

// listenSockets opens the sockets in the current network namespace. It returns the errors of ListenUDP.
func listenSockets(o UDPOptions) (*sockets, error) {
	var s *sockets
	var err error
	if o.From != nil {
		s, err = keptSockets(o)
	} else {
		s, err = newSockets(o)
	}
	if err != nil {
		return nil, err
	}
	s.applyOptions(o)
	return s, nil
}

// newSockets opens and binds the sockets.
func newSockets(o UDPOptions) (*sockets, error) {
	u, err := listenUDP(o, nil)
	if err != nil {
		return nil, err
	}
	s := &sockets{local: u.local, log: o.logger(), group: []*UDPSocket{u}, requested: requestedSockets(o)}
	s.openQueues(o)
	s.openLanes(o)
	return s, nil
}

// applyOptions applies the options that depend on the wire format and the disabled offloads.
func (s *sockets) applyOptions(o UDPOptions) {
	if o.Format == encap.FormatVXLAN {
		s.head = encap.VXLANOverhead
	}
	gro, one := !o.Off.Has(OffloadGRO), 1
	if !gro {
		one = 0
	}
	for _, u := range s.group {
		ok := unix.SetsockoptInt(u.fd, unix.SOL_UDP, unix.UDP_GRO, one) == nil
		gro = gro && ok
	}
	s.gro.set(OffloadGRO, o.Off, gro)
}

// supportsRuns reports whether the kernel sends a run in one call.
func (s *sockets) supportsRuns() bool {
	_, err := unix.GetsockoptInt(s.group[0].fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	return err == nil
}

// readRuns reads one run of datagrams per recvmsg(2) from u, until none is left.
func (s *sockets) readRuns(u *UDPSocket, r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		r.io.payload(p.Space())
		n, errno := r.io.recvmsg(u.fd, unix.MSG_TRUNC)
		switch {
		case errno == 0:
			p.Outer = r.io.name.addr()
			p.Truncated = n > len(p.Space())
			n = min(n, len(p.Space()))
			size := readControl(p, r.io.control())
			if size <= 0 || n <= size || s.isSuperpacket(p, n, size) {
				r.Commit(n)
				continue
			}
			r.CommitRun(n, size)
			s.gro.used((n + size - 1) / size)
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR || isQueuedError(errno):
		default:
			return fmt.Errorf("receive on udp %v: %w", s.local, errno)
		}
	}
}

// isSuperpacket reports whether the n bytes in the slot, which UDP_GRO delivered with a segment size, are one
// datagram with an inner UDP superpacket. A virtual interface delivers tunnel GSO so. In a run, an inner
// packet is never longer than its datagram.
func (s *sockets) isSuperpacket(p *Packet, n, size int) bool {
	in := &p.Info.Inner
	if in.Parse(p.Space()[min(s.head, n):n]) != nil {
		return false
	}
	if s.head+in.TotalLen <= size {
		p.parsed = true // of the first datagram
		return false
	}
	// A packet that only claims to be longer than its datagram is dropped alone: it must not get bytes of the
	// next datagram.
	if in.Proto != encap.ProtoUDP || in.L4 == 0 || in.TotalLen <= size || s.head+in.TotalLen != n {
		return false
	}
	p.parsed = true
	p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = size, true, s.head+in.L4, encap.ChecksumOffsetUDP
	return true
}

// whole implements wire: a UDP socket cannot send superpackets.
func (s *sockets) whole(*runWriter, *Ring, *Packet) bool { return false }

// address implements wire.
func (s *sockets) address(r *Ring, m *sendRun, h *messageHeader, v []unix.Iovec, n, size int) {
	s.from(r, m.first.Lane).address(m, h, v[1:], n, size)
}

// from returns the socket that sends a lane's datagrams.
func (s *sockets) from(r *Ring, lane uint8) *UDPSocket {
	if lane > 0 && int(lane) <= len(s.lanes) {
		return s.lanes[lane-1]
	}
	return s.group[r.Worker%len(s.group)]
}

// LanePort returns the source port of a lane's datagrams.
func (s *sockets) LanePort(lane uint8) uint16 {
	if lane > 0 && int(lane) <= len(s.lanes) {
		return s.lanes[lane-1].local.Port()
	}
	return s.local.Port()
}

// queues returns the queues of the tunnel's port, and those of the lanes.
func (s *sockets) queues() (l []Queue) {
	for i, u := range s.group {
		l = append(l, FDQueue{u.fd, workerFor(i, len(s.group)), func(r *Ring) error { return s.readRuns(u, r) }, u})
	}
	for i, u := range s.lanes {
		l = append(l, FDQueue{u.fd, i, u.clearErrors, u})
	}
	return l
}

// clearErrors clears the pending error of a lane's socket, which receives nothing else.
func (s *UDPSocket) clearErrors(r *Ring) error {
	p := r.Slot()
	for range MaxReads {
		if _, errno := recv(s.fd, p.Space(), 0); errno == unix.EAGAIN {
			break
		}
	}
	return nil
}

// overflow returns the number of datagrams that the kernel dropped because a receive buffer was full.
func (s *sockets) overflow() (n uint64) {
	for _, u := range s.group {
		n += u.Overflow()
	}
	return n
}

func (s *sockets) close() error {
	var errs []error
	for _, u := range slices.Concat(s.group, s.lanes) {
		errs = append(errs, u.Close())
	}
	return errors.Join(errs...)
}
