package tunnel

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// wire is where a run of datagrams goes: to UDP sockets, or as frames to packet sockets.
type wire interface {
	// transmit is one system call: n datagrams to r.io.send.first.Outer, of size bytes each
	// but for the last, gathered from r.io.send.iov[from:to]. The iovec before is free.
	transmit(r *Ring, from, to, n, size int) unix.Errno
	// whole sends a superpacket uncut, if it can. The verdict is delivered already: whole
	// changes it if the send failed.
	whole(r *Ring, p *Packet) bool
}

// packetWire is a wire without runs, which takes many packets in one system call all the same, each as if it
// were sent alone.
type packetWire interface {
	// transmitEach sends the n packets of r.io.send, and gives their verdicts to those that were not sent. They
	// are Delivered before.
	transmitEach(r *Ring, n int)
}

// runWriter makes runs of the packets that an underlay port is to send, and gives them to a wire. It is
// safe for concurrent use.
type runWriter struct {
	wire             wire
	name             string
	log              *slog.Logger
	maxSegs          int
	gso, pcsum, pack offload
	each             packetWire                   // nil for a wire that takes runs
	outlet           atomic.Pointer[OutletChoice] // nil if superpackets leave in runs only
}

// newRunWriter makes a run writer for a wire, which is called name in logs. gso says whether the kernel takes
// a run in one call.
func newRunWriter(to wire, o UDPOptions, name string, gso bool) *runWriter {
	w := &runWriter{wire: to, name: name, log: o.logger(), maxSegs: 64}
	w.each, _ = to.(packetWire)
	if w.each != nil || kernelAtLeast(6, 9) { // UDP_MAX_SEGMENTS
		w.maxSegs = maxRun
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

// leavesPartial says whether an inner checksum may be left partial for a peer that takes
// these forms: the outer one protects the packet.
func (w *runWriter) leavesPartial(recv Recv) bool { return recv&RecvPCsum != 0 && w.pcsum.on() }

// writeRuns sends ps. Packets for the same peer, of the same lane, go in runs: those of one size that follow
// one another, the segments of superpackets, and for a peer that takes them datagrams of
// several packets, leave in one system call, gathered from where they are. The order of
// packets to one peer in one lane is kept, of those with different ECN fields as well: a flow has
// both.
//
// It visits every packet once for each peer and lane in the batch. With 64 packets to 64 peers that is 25 ns
// a packet, of a send's 3 us (BenchmarkRuns): sorting first would cost the common case more.
func (w *runWriter) writeRuns(r *Ring, ps []*Packet) {
	run := &r.io.send
	for i, first := range ps {
		if first.verdict != pending {
			continue // went with an earlier one to its peer
		}
		run.begin(first)
		for _, p := range ps[i:] {
			if p.verdict != pending || p.Outer != first.Outer || p.lane != first.lane {
				continue
			}
			if p.OuterECN != run.first.OuterECN { // one send has one
				w.flush(r)
				run.begin(p)
			}
			p.Delivered() // until a send says otherwise
			w.gather(r, p)
		}
		w.flush(r)
	}
	w.pcsum.add(run.pcsum)
	run.pcsum = use{}
}

// leftPartial counts a packet, or a superpacket of so many, that leaves with partial checksums.
func (w *runWriter) leftPartial(r *Ring, segments int) {
	u := &r.io.send.pcsum
	u.calls++
	u.segments += uint64(segments)
}

// gather adds p, or its segments if it is a superpacket, to the run.
func (w *runWriter) gather(r *Ring, p *Packet) {
	if p.segSize == 0 {
		if p.partial {
			w.leftPartial(r, 1)
		}
		w.one(r, p)
		return
	}
	if c := w.outlet.Load(); c != nil && c.Outlet == OutletWhole && p.recv&RecvGSO != 0 && w.whole(r, p) {
		return
	}
	w.segments(r, p)
}

// whole sends a superpacket uncut, if the wire can.
func (w *runWriter) whole(r *Ring, p *Packet) bool {
	w.flush(r) // keep the order: what came before goes first
	return w.wire.whole(r, p)
}

// segments adds the segments of a superpacket to the run.
func (w *runWriter) segments(r *Ring, p *Packet) {
	u := &r.io.send
	super, why, ok := p.parseSuper()
	if !ok {
		p.Drop(why)
		return
	}
	if u.fill > 0 {
		w.flush(r)
	}
	partial := w.leavesPartial(p.recv)
	if partial {
		w.leftPartial(r, super.Segments)
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
		at := u.n * maxHead
		head := append(u.heads[at:at:at+maxHead], p.headers()...)
		head = super.AppendHeader(head, p.Bytes(), k, partial)
		from, to := super.Payload(k)
		u.add(p, head, p.Bytes()[from:to])
		k++
	}
}

// one adds a packet to the run: into the datagram that is open, or as one of its own.
func (w *runWriter) one(r *Ring, p *Packet) {
	u, b := &r.io.send, p.Datagram()
	packs := p.recv&RecvPack != 0 && w.pack.on()
	if packs && u.n == 1 && u.fill == 0 && len(b) != u.size && u.size <= p.limit {
		u.fill = p.limit // what began as a run of one size is one of mixed sizes
	}
	switch {
	case packs && u.joins(len(b)):
		u.join(p, b)
		return
	case packs && u.n < w.segs() && u.pads(len(b)):
		u.pad()
	case u.fill > 0:
		w.flush(r)
	default:
		w.room(r, len(b), 1)
	}
	u.add(p, b, nil)
	if packs && u.n == 1 && 2*len(b) <= p.limit && full(p.limit/len(b)*len(b), p.limit) {
		u.fill = p.limit // more of this size leave as little padding; else they go as a plain run
	}
}

// segs is how many datagrams a send may have.
func (w *runWriter) segs() int {
	if w.gso.on() || w.each != nil {
		return w.maxSegs
	}
	return 1
}

// room sends the run if a datagram of size bytes in so many pieces does not fit behind it.
func (w *runWriter) room(r *Ring, size, pieces int) {
	u := &r.io.send
	alike := w.each != nil || !u.ended && size <= u.size && u.bytes+size <= maxDatagram
	if u.n > 0 && (!alike || u.n >= w.segs() || u.used+pieces > len(u.iov)) {
		w.flush(r)
	}
}

// flush sends the run and empties it.
func (w *runWriter) flush(r *Ring) {
	u := &r.io.send
	if u.n == 0 {
		return
	}
	if w.each != nil {
		w.each.transmitEach(r, u.n)
		u.clear()
		return
	}
	if u.size = u.parts[0].bytes; u.fill > 0 && u.n > 1 {
		u.size = u.fill
	}
	if u.packets > u.n {
		w.pack.used(u.packets)
	}
	errno := w.wire.transmit(r, 1, u.used, u.n, u.size)
	switch {
	case errno == 0 && u.n > 1:
		w.gso.used(u.n)
	case (errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE) && u.n > 1:
		w.replay(r, errno)
	case errno != 0:
		for k := range u.packets {
			u.owner[k].verdictOf(errno)
		}
	}
	u.clear()
}

// replay sends the run's datagrams one by one, since cause refused them together.
// The offload is lost if a datagram of the full size passes alone. If none does, it
// was not to blame: older kernels say EINVAL of what exceeds the link's MTU.
func (w *runWriter) replay(r *Ring, cause unix.Errno) {
	u := &r.io.send
	passed := false
	at, owner := 1, 0
	for _, d := range u.parts[:u.n] {
		errno := unix.Errno(unix.EMSGSIZE)
		if cause != unix.EMSGSIZE || d.bytes < u.size { // a shorter last one may fit
			errno = w.wire.transmit(r, at, at+d.iovecs, 1, d.bytes)
		}
		switch {
		case errno != 0:
			for k := range d.packets {
				u.owner[owner+k].verdictOf(errno)
			}
			if errno == unix.EMSGSIZE {
				cause = errno
			}
		case d.bytes == u.size:
			passed = true
		}
		at += d.iovecs
		owner += d.packets
	}
	if passed {
		w.gso.lose(w.log, w.name, cause)
	}
}
