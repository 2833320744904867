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

// sockets are the UDP sockets of an underlay: those that share the tunnel's port and receive, and one
// for each lane, which only sends. They move runs of datagrams of one size in one system call. It is
// safe for concurrent use.
type sockets struct {
	local netip.AddrPort
	log   *slog.Logger
	group []*UDPSocket // these share the port; there is always one
	lanes []*UDPSocket
	gro   OffloadSwitch
	// wanted are how many queues and lanes were asked for. There may be fewer.
	wanted [2]int
	head   int // bytes of the format in a datagram, before the inner packet
}

// listenSockets opens the sockets in the current network namespace. The error is that of ListenUDP.
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
	s.offer(o)
	return s, nil
}

// newSockets binds the sockets.
func newSockets(o UDPOptions) (*sockets, error) {
	u, err := listenUDP(o, nil)
	if err != nil {
		return nil, err
	}
	s := &sockets{local: u.local, log: o.logger(), group: []*UDPSocket{u}, wanted: wantedSockets(o)}
	s.openQueues(o)
	s.openLanes(o)
	return s, nil
}

// offer sets what of the sockets depends on the wire format and on what is switched off.
func (s *sockets) offer(o UDPOptions) {
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

// takesRuns probes whether the kernel sends a run in one call.
func (s *sockets) takesRuns() bool {
	_, err := unix.GetsockoptInt(s.group[0].fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	return err == nil
}

// readRuns reads one run of datagrams a recvmsg(2) from u, until nothing is left.
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
			if size <= 0 || n <= size || s.superpacket(p, n, size) {
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

// superpacket says whether the n bytes in the slot, which came with UDP_GRO's segment size, are
// no batch of datagrams but one that holds an inner UDP superpacket: on a virtual wire
// tunnel GSO arrives so. An inner packet is never longer than its datagram.
func (s *sockets) superpacket(p *Packet, n, size int) bool {
	in := &p.Info.Inner
	if in.Parse(p.Space()[min(s.head, n):n]) != nil {
		return false
	}
	if s.head+in.TotalLen <= size {
		p.parsed = true // of the first datagram
		return false
	}
	// One that only claims to be longer than its datagram is refused by itself: it is to get nothing of the next
	// one.
	if in.Proto != encap.ProtoUDP || in.L4 == 0 || in.TotalLen <= size || s.head+in.TotalLen != n {
		return false
	}
	p.parsed = true
	p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = size, true, s.head+in.L4, encap.ChecksumOffsetUDP
	return true
}

// whole implements wire: a socket sends no superpackets.
func (s *sockets) whole(*runWriter, *Ring, *Packet) bool { return false }

// address implements wire.
func (s *sockets) address(r *Ring, m *sendRun, h *messageHeader, v []unix.Iovec, n, size int) {
	s.from(r, m.first.Lane).address(m, h, v[1:], n, size)
}

// from is the socket that a lane's datagrams leave from.
func (s *sockets) from(r *Ring, lane uint8) *UDPSocket {
	if lane > 0 && int(lane) <= len(s.lanes) {
		return s.lanes[lane-1]
	}
	return s.group[r.Worker%len(s.group)]
}

// LanePort is the port that a lane's datagrams leave from.
func (s *sockets) LanePort(lane uint8) uint16 {
	if lane > 0 && int(lane) <= len(s.lanes) {
		return s.lanes[lane-1].local.Port()
	}
	return s.local.Port()
}

// queues are those of the tunnel's port, and those of the lanes.
func (s *sockets) queues() (l []Queue) {
	for i, u := range s.group {
		l = append(l, FDQueue{u.fd, homeOf(i, len(s.group)), func(r *Ring) error { return s.readRuns(u, r) }, u})
	}
	for i, u := range s.lanes {
		l = append(l, FDQueue{u.fd, i, u.takeError, u})
	}
	return l
}

// takeError takes what error is pending off the socket of a lane, which has errors to read, and nothing else.
func (s *UDPSocket) takeError(r *Ring) error {
	p := r.Slot()
	for range MaxReads {
		if _, errno := recv(s.fd, p.Space(), 0); errno == unix.EAGAIN {
			break
		}
	}
	return nil
}

// overflow is how many datagrams the kernel dropped because a receive buffer was full.
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
