package port

import (
	"golang.org/x/sys/unix"

	"weft/encap"
)

const (
	// maxDatagram is the largest payload of one send over IPv4, in bytes: the IP length field less the headers.
	maxDatagram = 65535 - 20 - 8
	// maxPieces is the maximum number of iovecs in a send (UIO_MAXIOV), and in a whole queue. A run has at least
	// runPieces: a header and a payload for each datagram; or one for each packet of a full batch, and padding
	// for each datagram of several packets.
	maxPieces = 1024
	runPieces = 1 + max(2*MaxRun, BatchSize+MaxRun+maxDatagram/encap.MinMTU4)
	// maxSends, maxParts and maxOwners are the maximum numbers of sends, datagrams and packets in a queue.
	maxSends  = 128
	maxParts  = 3 * MaxRun
	runOwners = BatchSize + MaxRun
	maxOwners = 2 * runOwners
	// A run of largeRun datagrams or largeBytes is sent at once, with the sends that are queued before it. The
	// receiver can then process it while the worker gathers the next, which gains more than the extra system
	// call costs.
	largeRun   = 32
	largeBytes = 16 << 10
	// maxHead is the largest size of the headers before a segment's payload, in bytes.
	maxHead = encap.VXLANOverhead + encap.MaxSegmentHeader
	// padShare limits padding: a datagram is padded to the size of the others in its run if that adds at most
	// 1/padShare of that size. Otherwise it ends the run. A send costs as much as many bytes of padding on a
	// virtual interface, and as few on a real one.
	padShare = 4
)

// sendQueue holds the sends of a batch, to all peers, until a system call sends them.
type sendQueue struct {
	*sendRun     // the run being gathered, after the queued ones
	queued   int // number of queued sends
	sends    [maxSends + 1]sendRun
	headers  [maxSends]messageHeader // of sends

	// The memory of the runs. Each run uses what the previous one left.
	iovs   [maxPieces]unix.Iovec
	dgrams [maxParts]datagram
	owners [maxOwners]*Packet
	bytes  [maxParts * maxHead]byte

	pcsum, pack, gso use // of the whole batch
}

// sendRun is one send: datagrams of one size to one peer, of which the last may be shorter.
type sendRun struct {
	first *Packet // has the destination
	// iov has the pieces of the datagrams from index 1 on. The wire puts its own headers into iov[0].
	iov   []unix.Iovec
	parts []datagram
	owner []*Packet // packets in the datagrams, in order
	heads []byte    // maxHead bytes for each datagram

	total int  // bytes
	size  int  // of every datagram except the last
	ended bool // by a shorter datagram
	// fill is the size in bytes to which datagrams of several packets are filled. If it is 0, the run has no
	// such datagrams, and no packet is added to an existing datagram.
	fill int

	fd    int            // of the socket to send by
	front [frontLen]byte // the wire's headers
	name  socketName
	sendControl
}

// datagram is one datagram of a run.
type datagram struct {
	iovecs, packets, bytes int
}

// begin starts an empty run after the queued ones.
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

// full reports whether the queue must be sent before another run fits.
func (u *sendQueue) full() bool {
	return u.queued == maxSends || cap(u.iov) < runPieces || cap(u.parts) < MaxRun || cap(u.owner) < runOwners
}

// add appends a datagram of one or two pieces to the run. It must fit.
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

// own appends a datagram of p with that many pieces and bytes.
func (u *sendRun) own(p *Packet, pieces, size int) {
	u.owner = append(u.owner, p)
	u.parts = append(u.parts, datagram{pieces, 1, size})
	u.total += size
}

// free returns how many datagrams of size bytes, each in two pieces, fit in the run, which may have at most
// most. It is 0 if the run has another size.
func (u *sendRun) free(size, most int) int {
	if len(u.parts) > 0 && size != u.size {
		return 0
	}
	return min(most-len(u.parts), (maxDatagram-u.total)/size, (cap(u.iov)-len(u.iov))/2)
}

// head returns the memory for the headers of the next datagram.
func (u *sendRun) head() []byte {
	at := len(u.parts) * maxHead
	return u.heads[at : at : at+maxHead]
}

// addSegments appends n segments of p from segment k on, which have one size and fit. Their inner checksums
// stay partial, so that each header differs little from the one before.
func (u *sendRun) addSegments(p *Packet, super *encap.Super, k, n int) {
	b, size := p.Bytes(), p.prefix+super.SegmentLen(k)
	if len(u.parts) == 0 {
		u.size = size
	}
	var before []byte
	for ; n > 0; n, k = n-1, k+1 {
		head := u.head()[:size-super.SegmentSize]
		if copy(head, before); before == nil || !super.NextHeader(head[p.prefix:], k) {
			super.AppendHeader(append(head[:0], p.prefixBytes()...), b, k, true)
		}
		before = head
		from, to := super.Payload(k)
		u.iov = append(u.iov, iovec(head), iovec(b[from:to]))
		u.own(p, 2, size)
	}
}

// last returns the run's last datagram.
func (u *sendRun) last() *datagram { return &u.parts[len(u.parts)-1] }

// canJoin reports whether size more bytes fit into the last datagram.
func (u *sendRun) canJoin(size int) bool {
	return u.fill > 0 && u.last().bytes+size <= u.fill && u.total+size <= maxDatagram &&
		len(u.iov) < cap(u.iov) && len(u.owner) < cap(u.owner)
}

// join adds p to the last datagram.
func (u *sendRun) join(p *Packet, b []byte) {
	d := u.last()
	u.iov, u.owner = append(u.iov, iovec(b)), append(u.owner, p)
	d.iovecs++
	d.packets++
	d.bytes += len(b)
	u.total += len(b)
}

// canPad reports whether to pad the last datagram, so that one of size bytes or more can follow it.
func (u *sendRun) canPad(size int) bool {
	if u.fill == 0 || size > u.fill || len(u.iov)+2 > cap(u.iov) || len(u.owner) == cap(u.owner) {
		return false
	}
	last := u.last().bytes
	return full(last, u.fill) && u.total-last+2*u.fill <= maxDatagram
}

// full reports whether a datagram of size bytes is worth padding to fill.
func full(size, fill int) bool { return size*padShare >= fill*(padShare-1) }

// pad pads the last datagram, so that another can follow.
func (u *sendRun) pad() {
	d := u.last()
	if rest := u.fill - d.bytes; rest > 0 {
		u.iov = append(u.iov, iovec(encap.Padding(rest)))
		d.iovecs++
		d.bytes += rest
		u.total += rest
	}
}
