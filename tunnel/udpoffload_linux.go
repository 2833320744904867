package tunnel

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// maxDatagram is the most that one UDP_SEGMENT send takes over IPv4, in bytes: the
// IP length field less the headers.
const maxDatagram = 65535 - 20 - 8

// OffloadSocket is a UDP socket as an underlay port that sends and receives runs of
// datagrams in one call (path socket). It is safe for concurrent use.
type OffloadSocket struct {
	*UDPSocket
	log      *slog.Logger
	gso, gro offload
	maxSegs  int
}

// ListenOffload is ListenUDP with the offloads that the kernel has and o does not
// switch off. Without any it still carries packets.
func ListenOffload(o UDPOptions) (*OffloadSocket, error) {
	u, err := ListenUDP(o)
	if err != nil {
		return nil, err
	}
	s := &OffloadSocket{UDPSocket: u, log: o.Logger, maxSegs: 64}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	_, err = unix.GetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	s.gso.set(OffloadGSO, o.Off, err == nil)
	gro := !o.Off.Has(OffloadGRO) && unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	s.gro.set(OffloadGRO, o.Off, gro)
	if kernelAtLeast(6, 9) { // UDP_MAX_SEGMENTS
		s.maxSegs = maxRun
	}
	return s, nil
}

// kernelAtLeast compares the running kernel's version. There is no other way to
// learn how many segments a send may have, short of losing one.
func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

func (s *OffloadSocket) takesPartial() bool { return false }

// Offloads reports the socket's two.
func (s *OffloadSocket) Offloads() []OffloadStats {
	return []OffloadStats{s.gso.stats(), s.gro.stats()}
}

// ReadBatch implements Port: one run of datagrams a recvmsg(2).
func (s *OffloadSocket) ReadBatch(r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		r.io.payload(p.Space())
		n, errno := r.io.recvmsg(s.fd, unix.MSG_TRUNC)
		switch {
		case errno == 0:
			p.Outer = r.io.source()
			p.Truncated = n > len(p.Space())
			n = min(n, len(p.Space()))
			size := s.readControl(p, r.io.control())
			if size <= 0 || n <= size {
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

// WriteBatch implements Port. Packets for the same peer go in runs: those of one
// size that follow one another, and the segments of superpackets, leave in one
// sendmsg(2) with UDP_SEGMENT, gathered from where they are. The order of packets
// to one peer is kept, of those with different ECN fields as well: a flow has both.
func (s *OffloadSocket) WriteBatch(r *Ring, ps []*Packet) {
	run := &r.io.send
	for i, first := range ps {
		if first.verdict != pending {
			continue // went with an earlier one to its peer
		}
		run.begin(first)
		for _, p := range ps[i:] {
			if p.verdict != pending || p.Outer != first.Outer {
				continue
			}
			if p.OuterECN != run.first.OuterECN { // one send has one
				s.flush(r)
				run.begin(p)
			}
			p.Delivered() // until a send says otherwise
			s.gather(r, p)
		}
		s.flush(r)
	}
}

// sendRun is one UDP_SEGMENT send in the making.
type sendRun struct {
	first *Packet // says where to
	iov   [2 * maxRun]unix.Iovec
	parts [maxRun]segment
	heads [maxRun * encap.MaxSegmentHeader]byte
	n     int // segments
	used  int // iovecs
	bytes int
	size  int  // of every segment but the last
	ended bool // by a shorter one
}

// segment is one datagram of a run: how many iovecs it takes, and whose it is.
type segment struct {
	packet *Packet
	iovecs int
	bytes  int
}

func (u *sendRun) begin(first *Packet) {
	u.first = first
	u.clear()
}

func (u *sendRun) clear() { u.n, u.used, u.bytes, u.size, u.ended = 0, 0, 0, 0, false }

// gather adds p, or its segments if it is a superpacket, to the run.
func (s *OffloadSocket) gather(r *Ring, p *Packet) {
	u := &r.io.send
	if p.segSize == 0 {
		s.room(r, len(p.Bytes()))
		u.add(p, p.Bytes(), nil)
		return
	}
	in, err := encap.ParseInner(p.Bytes())
	if err != nil {
		p.Drop(DropMalformed)
		return
	}
	super, err := encap.ParseSuper(p.Bytes(), in, p.segSize)
	if err != nil {
		p.Drop(DropMalformed)
		return
	}
	for k := range super.Segments {
		s.room(r, super.SegmentLen(k))
		at := u.n * encap.MaxSegmentHeader
		head := super.AppendHeader(u.heads[at:at:at+encap.MaxSegmentHeader], p.Bytes(), k, false)
		from, to := super.Payload(k)
		u.add(p, head, p.Bytes()[from:to])
	}
}

// room sends the run if a datagram of size bytes does not fit behind it.
func (s *OffloadSocket) room(r *Ring, size int) {
	u := &r.io.send
	limit := s.maxSegs
	if !s.gso.on() {
		limit = 1
	}
	if u.n > 0 && (u.ended || size > u.size || u.n >= limit || u.bytes+size > maxDatagram) {
		s.flush(r)
	}
}

// add puts a datagram of one or two pieces behind the run, where there is room.
func (u *sendRun) add(p *Packet, a, b []byte) {
	size := len(a) + len(b)
	if u.n == 0 {
		u.size = size
	}
	u.ended = size < u.size
	u.iov[u.used] = iovec(a)
	pieces := 1
	if len(b) > 0 {
		u.iov[u.used+1] = iovec(b)
		pieces = 2
	}
	u.parts[u.n] = segment{p, pieces, size}
	u.used += pieces
	u.bytes += size
	u.n++
}

// flush sends the run and empties it.
func (s *OffloadSocket) flush(r *Ring) {
	u := &r.io.send
	if u.n == 0 {
		return
	}
	errno := s.transmit(r, u.iov[:u.used], u.n, u.size)
	switch {
	case errno == 0 && u.n > 1:
		s.gso.used(u.n)
	case (errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE) && u.n > 1:
		s.replay(r, errno)
	case errno != 0:
		for _, g := range u.parts[:u.n] {
			g.packet.verdictOf(errno)
		}
	}
	u.clear()
}

// replay sends the run's datagrams one by one, since cause refused them together.
// The offload is lost if a datagram of the full size passes alone. If none does, it
// was not to blame: older kernels say EINVAL of what exceeds the link's MTU.
func (s *OffloadSocket) replay(r *Ring, cause unix.Errno) {
	u := &r.io.send
	iov := u.iov[:u.used]
	passed := false
	for _, g := range u.parts[:u.n] {
		errno := unix.Errno(unix.EMSGSIZE)
		if cause != unix.EMSGSIZE || g.bytes < u.size { // a shorter last one may fit
			errno = s.transmit(r, iov[:g.iovecs], 1, g.bytes)
		}
		iov = iov[g.iovecs:]
		switch {
		case errno != 0:
			g.packet.verdictOf(errno)
			if errno == unix.EMSGSIZE {
				cause = errno
			}
		case g.bytes == u.size:
			passed = true
		}
	}
	if passed {
		s.gso.lose(s.log, s.local.String(), cause)
	}
}

// transmit is one system call: n datagrams of size bytes each, gathered from iov.
func (s *OffloadSocket) transmit(r *Ring, iov []unix.Iovec, n, size int) unix.Errno {
	r.io.gather(iov)
	r.io.n = 0
	r.io.putECN(r.io.send.first)
	if n > 1 {
		r.io.putControl(unix.SOL_UDP, unix.UDP_SEGMENT, 2, size)
	}
	return s.sendTo(r, r.io.send.first.Outer)
}
