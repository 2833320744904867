package tunnel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// OffloadSocket is a UDP socket as an underlay port that sends and receives runs of
// datagrams in one call (path socket). It is safe for concurrent use.
type OffloadSocket struct {
	*UDPSocket
	runWriter
	gro offload
	// group are the sockets that share the port, the first of them UDPSocket; ways are those
	// of the lanes, which only send.
	group, ways []*UDPSocket
	head        int // bytes of the format in a datagram, before the inner packet
}

// ListenOffload is ListenUDP with the offloads that the kernel has and o does not
// switch off. Without any it still carries packets.
func ListenOffload(o UDPOptions) (*OffloadSocket, error) {
	u, err := ListenUDP(o)
	if err != nil {
		return nil, err
	}
	s := &OffloadSocket{UDPSocket: u, group: []*UDPSocket{u}}
	if o.Format == encap.FormatVXLAN {
		s.head = encap.VXLANOverhead
	}
	_, err = unix.GetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	s.runWriter.set(s, o, u.local.String(), err == nil)
	s.spread(o)
	gro := !o.Off.Has(OffloadGRO)
	for _, u := range s.group {
		gro = gro && unix.SetsockoptInt(u.fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	}
	s.gro.set(OffloadGRO, o.Off, gro)
	return s, nil
}

// Offloads reports the socket's.
func (s *OffloadSocket) Offloads() []OffloadStats {
	return append(s.runWriter.stats(), s.gro.stats())
}

// ReadBatch implements Port: one run of datagrams a recvmsg(2).
func (s *OffloadSocket) ReadBatch(r *Ring) error { return s.readRuns(s.UDPSocket, r) }

func (s *OffloadSocket) readRuns(u *UDPSocket, r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		r.io.payload(p.Space())
		n, errno := r.io.recvmsg(u.fd, unix.MSG_TRUNC)
		switch {
		case errno == 0:
			p.Outer = r.io.source()
			p.Truncated = n > len(p.Space())
			n = min(n, len(p.Space()))
			size := u.readControl(p, r.io.control())
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
func (s *OffloadSocket) superpacket(p *Packet, n, size int) bool {
	in, err := encap.ParseInner(p.Space()[min(s.head, n):n])
	if err != nil || in.TotalLen <= size || in.Proto != encap.ProtoUDP || in.L4 == 0 {
		return false
	}
	p.segSize, p.partial, p.csumStart, p.csumOffset = size, true, s.head+in.L4, encap.ChecksumOffsetUDP
	return true
}

// WriteBatch implements Port, in runs.
func (s *OffloadSocket) WriteBatch(r *Ring, ps []*Packet) { s.writeRuns(r, ps) }

// whole implements wire: a socket sends no superpackets.
func (s *OffloadSocket) whole(*Ring, *Packet) bool { return false }

// transmit implements wire: one sendmsg(2).
func (s *OffloadSocket) transmit(r *Ring, from, to, n, size int) unix.Errno {
	u := &r.io.send
	r.io.gather(u.iov[from:to])
	r.io.n = 0
	r.io.putECN(u.first)
	if n > 1 {
		r.io.putControl(unix.SOL_UDP, unix.UDP_SEGMENT, 2, size)
	}
	return s.from(r, u.first.lane).sendTo(r, u.first.Outer)
}

// from is the socket that a lane's datagrams leave from.
func (s *OffloadSocket) from(r *Ring, lane uint8) *UDPSocket {
	if lane > 0 && int(lane) <= len(s.ways) {
		return s.ways[lane-1]
	}
	return s.group[r.worker%len(s.group)]
}
