package port

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// wire sends runs of datagrams: by UDP sockets, or as frames by packet sockets.
type wire interface {
	// address makes h the header of a send, and sets m.fd to its socket. The send has n datagrams to
	// m.first.Outer, gathered from v. All have size bytes, except that the last may be shorter. The first iovec
	// of v is unused.
	address(r *Ring, m *sendRun, h *messageHeader, v []unix.Iovec, n, size int)
	// whole sends a superpacket unsegmented, after the queued sends. It returns false if it cannot. The verdict
	// is already Delivered; whole changes it if the send failed.
	whole(w *runWriter, r *Ring, p *Packet) bool
}

// runWriter gathers the packets that an underlay port sends into runs, and passes them to a wire. It is safe
// for concurrent use.
type runWriter struct {
	wire             wire
	name             string
	log              *slog.Logger
	maxSegs          int
	gso, pcsum, pack OffloadSwitch
	outlet           atomic.Pointer[OutletChoice] // nil if superpackets leave only in runs
	sendmmsg         func(fd int, ms []messageHeader) (int, unix.Errno)
}

// newRunWriter makes a run writer for a wire. name is for logs. gso means that the kernel sends a run in one
// call.
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

// kernelAtLeast compares the running kernel's version. The kernel has no other way to tell how many segments
// a send may have.
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

// LeavesPartial reports whether an inner checksum may stay partial for a peer with these capabilities. The
// outer checksum protects the packet.
func (w *runWriter) LeavesPartial(recv Recv) bool { return recv&RecvPCsum != 0 && w.pcsum.On() }

// writeRuns sends ps. Packets of one peer and lane go in runs: consecutive packets of one size, segments of
// superpackets, and datagrams of several packets for peers that accept them. A run leaves in one send,
// gathered from where its packets are. One system call per socket sends the runs of all peers. The packets of
// one peer and lane stay in order, even with different ECN fields.
//
// writeRuns visits every packet once for each peer and lane in the batch. With 64 packets to 64 peers that
// takes 25 ns a packet (BenchmarkRuns). Sorting first would make the common case slower.
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

// writeLane gathers those of ps that belong to one lane, and so to one socket.
func (w *runWriter) writeLane(r *Ring, ps []*Packet, lane uint8) {
	u := &r.io.send
	for i, first := range ps {
		if first.Verdict != Pending || first.Lane != lane {
			continue // sent with an earlier packet of its peer
		}
		u.begin(first)
		for _, p := range ps[i:] {
			if p.Verdict != Pending || p.Outer != first.Outer || p.Lane != lane {
				continue
			}
			if p.OuterECN != u.first.OuterECN { // a send has one ECN field
				w.flush(r)
				u.begin(p)
			}
			p.Delivered() // until a send fails
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
	full := p.prefix + super.SegmentLen(0)
	for k := 0; k < super.Segments; {
		w.ensureRoom(r, p.prefix+super.SegmentLen(k), 2)
		if partial { // so no header includes bytes of the payload
			if n := min(super.Segments-1-k, u.free(full, w.segs())); n > 1 {
				u.addSegments(p, super, k, n)
				k += n
				continue
			}
		}
		head := append(u.head(), p.prefixBytes()...)
		head = super.AppendHeader(head, p.Bytes(), k, partial)
		from, to := super.Payload(k)
		u.add(p, head, p.Bytes()[from:to])
		k++
	}
}

// one adds a packet to the run: to its last datagram, or as a new datagram.
func (w *runWriter) one(r *Ring, p *Packet) {
	u, b := &r.io.send, p.Datagram()
	packs := p.Recv&RecvPack != 0 && w.pack.On()
	if packs && len(u.parts) == 1 && u.fill == 0 && len(b) != u.size && u.size <= p.Limit {
		u.fill = p.Limit // a run of one size becomes a run of mixed sizes
	}
	switch {
	case packs && u.canJoin(len(b)):
		u.join(p, b)
		return
	case packs && len(u.parts) < w.segs() && u.canPad(len(b)):
		u.pad()
	case u.fill > 0:
		w.flush(r)
	default:
		w.ensureRoom(r, len(b), 1)
	}
	u.add(p, b, nil)
	if packs && len(u.parts) == 1 && 2*len(b) <= p.Limit && full(p.Limit/len(b)*len(b), p.Limit) {
		u.fill = p.Limit // more packets of this size need as little padding; otherwise they go as a plain run
	}
}

// segs returns the maximum number of datagrams in a send.
func (w *runWriter) segs() int {
	if w.gso.On() {
		return w.maxSegs
	}
	return 1
}

// ensureRoom ends the run if a datagram of that size and number of pieces does not fit in it.
func (w *runWriter) ensureRoom(r *Ring, size, pieces int) {
	u := &r.io.send
	alike := !u.ended && size <= u.size && u.total+size <= maxDatagram
	if n := len(u.parts); n > 0 && (!alike || n >= w.segs() || len(u.iov)+pieces > cap(u.iov)) {
		w.flush(r)
	}
}

// flush queues the run, and begins the next.
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

// drain sends the queued runs, by one system call for each socket. After an error it repeats the send where
// the call stopped, because the error may belong to an earlier datagram.
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
			if tries.shouldRetry(r, m.fd, errno) {
				continue
			}
			w.sendFailed(r, k, errno)
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

// sendFailed sets the verdicts of a send that failed. It first tries the datagrams of a run one by one.
func (w *runWriter) sendFailed(r *Ring, k int, errno unix.Errno) {
	m := &r.io.send.sends[k]
	if (errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE) && len(m.parts) > 1 {
		w.replay(r, k, errno)
		return
	}
	for _, p := range m.owner {
		p.verdictOf(errno)
	}
}

// replay sends the datagrams of a run one by one, after the kernel rejected them together with cause. The
// offload is lost if a datagram of the full size can be sent alone. If none can, the offload is not the
// reason: older kernels return EINVAL for datagrams that exceed the link's MTU.
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
				if _, errno = w.sendmmsg(m.fd, h); !tries.shouldRetry(r, m.fd, errno) {
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
