package port

import (
	"golang.org/x/sys/unix"

	"weft/encap"
)

const (
	// maxDatagram is the most that one send takes over IPv4, in bytes: the IP length field
	// less the headers.
	maxDatagram = 65535 - 20 - 8
	// maxPieces is the most iovecs that the kernel takes in a send (UIO_MAXIOV), and that all of a queue have.
	// A run has room for runPieces at least: each datagram has a header and a payload, or each packet of a full
	// batch one, and each datagram of several its padding.
	maxPieces = 1024
	runPieces = 1 + max(2*MaxRun, BatchSize+MaxRun+maxDatagram/encap.MinMTU4)
	// maxSends, maxParts and maxOwners are the most sends, datagrams and packets of a queue.
	maxSends  = 128
	maxParts  = 3 * MaxRun
	runOwners = BatchSize + MaxRun
	maxOwners = 2 * runOwners
	// A run of largeRun datagrams or largeBytes leaves at once, with what is queued before it: its receiver
	// begins while the next one is made, which is worth more than a system call.
	largeRun   = 32
	largeBytes = 16 << 10
	// maxHead is the most that precedes the payload of a superpacket's segment, in bytes.
	maxHead = encap.VXLANOverhead + encap.MaxSegmentHeader
	// padShare decides when a datagram is padded: it is padded to the size of the others in its run if that adds
	// at most this part of it; otherwise the run ends with it. A send costs as much as many bytes of padding on
	// a virtual wire, and few on a real one.
	padShare = 4
)

// sendQueue holds the sends of a batch, to all peers, until a system call takes them.
type sendQueue struct {
	*sendRun     // the run in the making: the send after those that are queued
	queued   int // sends
	sends    [maxSends + 1]sendRun
	headers  [maxSends]messageHeader // of sends

	// The memory of the runs. Each run has what the one before it has left.
	iovs   [maxPieces]unix.Iovec
	dgrams [maxParts]datagram
	owners [maxOwners]*Packet
	bytes  [maxParts * maxHead]byte

	pcsum, pack, gso use // of the whole batch
}

// sendRun is one send: datagrams of one size, of which the last may be shorter, for one peer.
type sendRun struct {
	first *Packet // says where to
	// iov are the pieces of the datagrams, from the second on: the wire puts its own headers
	// into the first.
	iov   []unix.Iovec
	parts []datagram
	owner []*Packet // of the datagrams, in order
	heads []byte    // maxHead for each datagram

	total int  // bytes
	size  int  // of every datagram but the last
	ended bool // by a shorter one
	// fill is what a datagram of several packets is filled up to, in bytes; 0 if the run has
	// none, and takes no packet into the datagrams that it has.
	fill int

	fd    int            // of the socket that it leaves by
	front [frontLen]byte // the wire's own headers
	name  socketName
	sendControl
}

// datagram is one of a run.
type datagram struct {
	iovecs, packets, bytes int
}

// begin makes the run after those that are queued an empty one.
func (u *sendQueue) begin(first *Packet) {
	m := &u.sends[u.queued]
	if u.queued == 0 {
		m.iov, m.parts, m.owner, m.heads = u.iovs[:1], u.dgrams[:0], u.owners[:0], u.bytes[:]
	} else {
		l := &u.sends[u.queued-1]
		m.iov, m.parts, m.owner = l.iov[len(l.iov):][:1], l.parts[len(l.parts):], l.owner[len(l.owner):]
		m.heads = l.heads[len(l.parts)*maxHead:]
	}
	m.first, m.total, m.size, m.ended, m.fill = first, 0, 0, false, 0
	u.sendRun = m
}

// full says whether what is queued must leave before there is room for another run.
func (u *sendQueue) full() bool {
	return u.queued == maxSends || cap(u.iov) < runPieces || cap(u.parts) < MaxRun || cap(u.owner) < runOwners
}

// add puts a datagram of one or two pieces behind the run, where there is room.
func (u *sendRun) add(p *Packet, a, b []byte) {
	u.iov = append(u.iov, iovec(a))
	pieces, size := 1, len(a)+len(b)
	if len(b) > 0 {
		u.iov = append(u.iov, iovec(b))
		pieces = 2
	}
	if len(u.parts) == 0 {
		u.size = size
	}
	u.ended = size < u.size
	u.own(p, pieces, size)
}

// own makes p the owner of a datagram behind the run, which has so many pieces.
func (u *sendRun) own(p *Packet, pieces, size int) {
	u.owner = append(u.owner, p)
	u.parts = append(u.parts, datagram{pieces, 1, size})
	u.total += size
}

// free is how many datagrams of size bytes, in two pieces each, fit behind the run, which may have most. It
// is 0 if they are not of the run's size.
func (u *sendRun) free(size, most int) int {
	if len(u.parts) > 0 && size != u.size {
		return 0
	}
	return min(most-len(u.parts), (maxDatagram-u.total)/size, (cap(u.iov)-len(u.iov))/2)
}

// head is the memory for the headers of the next datagram.
func (u *sendRun) head() []byte {
	at := len(u.parts) * maxHead
	return u.heads[at : at : at+maxHead]
}

// addSegments puts n segments of p from segment k on behind the run, which are of one size and fit. Their
// inner checksums stay partial, so that a header differs from the one before in little.
func (u *sendRun) addSegments(p *Packet, super *encap.Super, k, n int) {
	b, size := p.Bytes(), p.head+super.SegmentLen(k)
	if len(u.parts) == 0 {
		u.size = size
	}
	var before []byte
	for ; n > 0; n, k = n-1, k+1 {
		head := u.head()[:size-super.SegmentSize]
		if copy(head, before); before == nil || !super.NextHeader(head[p.head:], k) {
			super.AppendHeader(append(head[:0], p.headers()...), b, k, true)
		}
		before = head
		from, to := super.Payload(k)
		u.iov = append(u.iov, iovec(head), iovec(b[from:to]))
		u.own(p, 2, size)
	}
}

// last is the run's last datagram.
func (u *sendRun) last() *datagram { return &u.parts[len(u.parts)-1] }

// joins says whether size more bytes fit into the last datagram.
func (u *sendRun) joins(size int) bool {
	return u.fill > 0 && u.last().bytes+size <= u.fill && u.total+size <= maxDatagram &&
		len(u.iov) < cap(u.iov) && len(u.owner) < cap(u.owner)
}

// join puts p into the last datagram.
func (u *sendRun) join(p *Packet, b []byte) {
	d := u.last()
	u.iov, u.owner = append(u.iov, iovec(b)), append(u.owner, p)
	d.iovecs++
	d.packets++
	d.bytes += len(b)
	u.total += len(b)
}

// pads says whether the last datagram is so full that it is worth padding, so that one
// of size bytes and more can follow it.
func (u *sendRun) pads(size int) bool {
	if u.fill == 0 || size > u.fill || len(u.iov)+2 > cap(u.iov) || len(u.owner) == cap(u.owner) {
		return false
	}
	last := u.last().bytes
	return full(last, u.fill) && u.total-last+2*u.fill <= maxDatagram
}

// full says whether a datagram of size bytes is worth padding to fill.
func full(size, fill int) bool { return size*padShare >= fill*(padShare-1) }

// pad fills the last datagram up, so that another can follow.
func (u *sendRun) pad() {
	d := u.last()
	if rest := u.fill - d.bytes; rest > 0 {
		u.iov = append(u.iov, iovec(encap.Padding(rest)))
		d.iovecs++
		d.bytes += rest
		u.total += rest
	}
}
