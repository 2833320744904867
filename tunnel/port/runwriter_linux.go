package port

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// wire is where a run of datagrams goes: to UDP sockets, or as frames to packet sockets.
type wire interface {
	// address makes h the header of a send, and notes in m the socket that it leaves by: n datagrams to
	// m.first.Outer, of size bytes each but for the last, gathered from v. The first iovec of v is free.
	address(r *Ring, m *sendRun, h *messageHeader, v []unix.Iovec, n, size int)
	// whole sends a superpacket uncut, if it can, after what is queued. The verdict is delivered already: whole
	// changes it if the send failed.
	whole(w *runWriter, r *Ring, p *Packet) bool
}

// runWriter makes runs of the packets that an underlay port is to send, and gives them to a wire. It is
// safe for concurrent use.
type runWriter struct {
	wire             wire
	name             string
	log              *slog.Logger
	maxSegs          int
	gso, pcsum, pack OffloadSwitch
	outlet           atomic.Pointer[OutletChoice] // nil if superpackets leave in runs only
	sendmmsg         func(fd int, ms []messageHeader) (int, unix.Errno)
}

// newRunWriter makes a run writer for a wire, which is called name in logs. gso says whether the kernel takes
// a run in one call.
func newRunWriter(to wire, o UDPOptions, name string, gso bool) *runWriter {
	w := &runWriter{wire: to, name: name, log: o.logger(), maxSegs: 64, sendmmsg: sendmmsg}
	if kernelAtLeast(6, 9) { // UDP_MAX_SEGMENTS
		w.maxSegs = MaxRun
	}
	w.gso.set(OffloadGSO, o.Off, gso)
	w.pcsum.set(OffloadPCsum, o.Off, true)
	w.pack.set(OffloadPack, o.Off, true)
	return w
}

// kernelAtLeast compares the running kernel's version. Nothing else tells
// how many segments a send may have, but the loss of one.
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

func (w *runWriter) stats() []OffloadStats {
	return []OffloadStats{w.pcsum.stats(), w.pack.stats(), w.gso.stats()}
}

// LeavesPartial says whether an inner checksum may be left partial for a peer that takes
// these forms: the outer one protects the packet.
func (w *runWriter) LeavesPartial(recv Recv) bool { return recv&RecvPCsum != 0 && w.pcsum.On() }

// writeRuns sends ps. Packets for the same peer, of the same lane, go in runs: those of one size that follow
// one another, the segments of superpackets, and for a peer that takes them datagrams of
// several packets, leave in one send, gathered from where they are. The runs of all peers leave together, by
// one system call for each socket. The order of packets to one peer in one lane is kept, of those with
// different ECN fields as well: a flow has both.
//
// It visits every packet once for each peer and lane in the batch. With 64 packets to 64 peers that is 25 ns
// a packet (BenchmarkRuns): sorting first would cost the common case more.
func (w *runWriter) writeRuns(r *Ring, ps []*Packet) {
	for i, p := range ps {
		if p.Verdict == Pending {
			w.writeLane(r, ps[i:], p.Lane)
		}
	}
	w.drain(r)
	u := &r.io.send
	w.pcsum.add(u.pcsum)
	w.pack.add(u.pack)
	w.gso.add(u.gso)
	u.pcsum, u.pack, u.gso = use{}, use{}, use{}
}

// writeLane makes runs of those of ps that leave by one socket, that of their lane.
func (w *runWriter) writeLane(r *Ring, ps []*Packet, lane uint8) {
	u := &r.io.send
	for i, first := range ps {
		if first.Verdict != Pending || first.Lane != lane {
			continue // went with an earlier one to its peer
		}
		u.begin(first)
		for _, p := range ps[i:] {
			if p.Verdict != Pending || p.Outer != first.Outer || p.Lane != lane {
				continue
			}
			if p.OuterECN != u.first.OuterECN { // one send has one
				w.flush(r)
				u.begin(p)
			}
			p.Delivered() // until a send says otherwise
			w.gather(r, p)
		}
		w.flush(r)
	}
}

// gather adds p, or its segments if it is a superpacket, to the run.
func (w *runWriter) gather(r *Ring, p *Packet) {
	if p.SegSize == 0 {
		if p.Partial {
			r.io.send.pcsum.count(1)
		}
		w.one(r, p)
		return
	}
	if c := w.outlet.Load(); c != nil && c.Outlet == OutletWhole && p.Recv&RecvGSO != 0 && w.wire.whole(w, r,
		p) {
		return
	}
	w.segments(r, p)
}

// segments adds the segments of a superpacket to the run.
func (w *runWriter) segments(r *Ring, p *Packet) {
	u := &r.io.send
	super, why, ok := p.ParseSuper()
	if !ok {
		p.Drop(why)
		return
	}
	if u.fill > 0 {
		w.flush(r)
	}
	partial := w.LeavesPartial(p.Recv)
	if partial {
		u.pcsum.count(super.Segments)
	}
	full := p.head + super.SegmentLen(0)
	for k := 0; k < super.Segments; {
		w.room(r, p.head+super.SegmentLen(k), 2)
		if partial { // and so nothing of the payload is in a header
			if n := min(super.Segments-1-k, u.free(full, w.segs())); n > 1 {
				u.addSegments(p, super, k, n)
				k += n
				continue
			}
		}
		head := append(u.head(), p.headers()...)
		head = super.AppendHeader(head, p.Bytes(), k, partial)
		from, to := super.Payload(k)
		u.add(p, head, p.Bytes()[from:to])
		k++
	}
}

// one adds a packet to the run: into the datagram that is open, or as one of its own.
func (w *runWriter) one(r *Ring, p *Packet) {
	u, b := &r.io.send, p.Datagram()
	packs := p.Recv&RecvPack != 0 && w.pack.On()
	if packs && len(u.parts) == 1 && u.fill == 0 && len(b) != u.size && u.size <= p.Limit {
		u.fill = p.Limit // what began as a run of one size is one of mixed sizes
	}
	switch {
	case packs && u.joins(len(b)):
		u.join(p, b)
		return
	case packs && len(u.parts) < w.segs() && u.pads(len(b)):
		u.pad()
	case u.fill > 0:
		w.flush(r)
	default:
		w.room(r, len(b), 1)
	}
	u.add(p, b, nil)
	if packs && len(u.parts) == 1 && 2*len(b) <= p.Limit && full(p.Limit/len(b)*len(b), p.Limit) {
		u.fill = p.Limit // more of this size leave as little padding; else they go as a plain run
	}
}

// segs is how many datagrams a send may have.
func (w *runWriter) segs() int {
	if w.gso.On() {
		return w.maxSegs
	}
	return 1
}

// room ends the run if a datagram of size bytes in so many pieces does not fit behind it.
func (w *runWriter) room(r *Ring, size, pieces int) {
	u := &r.io.send
	alike := !u.ended && size <= u.size && u.total+size <= maxDatagram
	if n := len(u.parts); n > 0 && (!alike || n >= w.segs() || len(u.iov)+pieces > cap(u.iov)) {
		w.flush(r)
	}
}

// flush queues the run, and begins another.
func (w *runWriter) flush(r *Ring) {
	u := &r.io.send
	n := len(u.parts)
	if n == 0 {
		return
	}
	if u.size = u.parts[0].bytes; u.fill > 0 && n > 1 {
		u.size = u.fill
	}
	if len(u.owner) > n {
		u.pack.count(len(u.owner))
	}
	w.wire.address(r, u.sendRun, &u.headers[u.queued], u.iov, n, u.size)
	first, large := u.first, n >= largeRun || u.total >= largeBytes
	u.queued++
	if u.begin(first); large || u.full() {
		w.drain(r)
	}
}

// drain sends what is queued, by one system call for each socket. A send that it stops at is begun anew,
// since an error may be of an earlier datagram.
func (w *runWriter) drain(r *Ring) {
	u := &r.io.send
	tries := sendTries{}
	for k := 0; k < u.queued; {
		m, n := &u.sends[k], k+1
		for n < u.queued && u.sends[n].fd == m.fd {
			n++
		}
		r.Writes++
		sent, errno := w.sendmmsg(m.fd, u.headers[k:n])
		if errno != 0 {
			if tries.again(r, m.fd, errno) {
				continue
			}
			w.refused(r, k, errno)
			sent = 1
		}
		for ; sent > 0; sent-- {
			if n := len(u.sends[k].parts); n > 1 && errno == 0 {
				u.gso.count(n)
			}
			k++
		}
		tries = sendTries{}
	}
	first := u.first
	u.queued = 0
	u.begin(first)
}

// refused gives the packets of a send their verdict. What of a run can leave alone does.
func (w *runWriter) refused(r *Ring, k int, errno unix.Errno) {
	m := &r.io.send.sends[k]
	if (errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE) && len(m.parts) > 1 {
		w.replay(r, k, errno)
		return
	}
	for _, p := range m.owner {
		p.verdictOf(errno)
	}
}

// replay sends the datagrams of a run one by one, since cause refused them together.
// The offload is lost if a datagram of the full size passes alone. If none does, it
// was not to blame: older kernels say EINVAL of what exceeds the link's MTU.
func (w *runWriter) replay(r *Ring, k int, cause unix.Errno) {
	u := &r.io.send
	m, h := &u.sends[k], u.headers[k:k+1]
	passed := false
	iov, owner := m.iov, m.owner
	for _, d := range m.parts {
		errno := unix.Errno(unix.EMSGSIZE)
		if cause != unix.EMSGSIZE || d.bytes < m.size { // a shorter last one may fit
			w.wire.address(r, m, &h[0], iov[:1+d.iovecs], 1, d.bytes)
			for tries := (sendTries{}); ; {
				r.Writes++
				if _, errno = w.sendmmsg(m.fd, h); !tries.again(r, m.fd, errno) {
					break
				}
			}
		}
		switch {
		case errno != 0:
			for _, p := range owner[:d.packets] {
				p.verdictOf(errno)
			}
			if errno == unix.EMSGSIZE {
				cause = errno
			}
		case d.bytes == m.size:
			passed = true
		}
		iov, owner = iov[d.iovecs:], owner[d.packets:]
	}
	if passed {
		w.gso.lose(w.log, w.name, cause)
	}
}
