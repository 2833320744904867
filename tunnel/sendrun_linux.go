package tunnel

import (
	"golang.org/x/sys/unix"

	"weft/encap"
)

const (
	// maxDatagram is the most that one send takes over IPv4, in bytes: the IP length field
	// less the headers.
	maxDatagram = 65535 - 20 - 8
	// maxPieces is the most iovecs of a run: each datagram has a header and a payload, or
	// each packet of a full batch one, and each datagram of several its padding. The kernel
	// takes 1024 (UIO_MAXIOV).
	maxPieces = 1 + max(2*maxRun, batchSize+maxRun+maxDatagram/encap.MinMTU4)
	// maxHead is the most that precedes the payload of a superpacket's segment, in bytes.
	maxHead = encap.VXLANOverhead + encap.MaxSegmentHeader
	// padShare decides when a datagram is padded: it is padded to the size of the others in its run if that adds
	// at most this part of it; otherwise the run ends with it. A send costs as much as many bytes of padding on
	// a virtual wire, and few on a real one.
	padShare = 4
)

// sendRun is one send in the making: datagrams of one size, of which the last may be
// shorter, for one peer.
type sendRun struct {
	first *Packet // says where to
	// iov are the pieces of the datagrams, from the second on: the wire puts its own headers
	// into the first.
	iov   [maxPieces]unix.Iovec
	parts [maxRun]datagram
	owner [batchSize + maxRun]*Packet // of the datagrams, in order
	heads [maxRun * maxHead]byte
	front [frontLen]byte // the wire's own headers

	n       int // datagrams
	used    int // iovecs
	packets int // owners
	bytes   int
	size    int  // of every datagram but the last
	ended   bool // by a shorter one
	// fill is what a datagram of several packets is filled up to, in bytes; 0 if the run has
	// none, and takes no packet into the datagrams that it has.
	fill int

	pcsum use // of the whole batch
}

// datagram is one of a run.
type datagram struct {
	iovecs, packets, bytes int
}

func (u *sendRun) begin(first *Packet) {
	u.first = first
	u.clear()
}

func (u *sendRun) clear() {
	u.n, u.used, u.packets, u.bytes, u.size, u.ended, u.fill = 0, 1, 0, 0, 0, false, 0
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
	u.owner[u.packets] = p
	u.parts[u.n] = datagram{pieces, 1, size}
	u.packets++
	u.used += pieces
	u.bytes += size
	u.n++
}

// free is how many datagrams of size bytes, in two pieces each, fit behind the run, which may have most. It
// is 0 if they are not of the run's size.
func (u *sendRun) free(size, most int) int {
	if u.n > 0 && size != u.size {
		return 0
	}
	return min(most-u.n, (maxDatagram-u.bytes)/size, (len(u.iov)-u.used)/2)
}

// addSegments puts n segments of p from segment k on behind the run, which are of one size and fit. Their
// inner checksums stay partial, so that a header differs from the one before in little.
func (u *sendRun) addSegments(p *Packet, super *encap.Super, k, n int) {
	b, size := p.Bytes(), p.head+super.SegmentLen(k)
	if u.n == 0 {
		u.size = size
	}
	var before []byte
	for ; n > 0; n, k = n-1, k+1 {
		at := u.n * maxHead
		head := u.heads[at : at+size-super.SegmentSize : at+maxHead]
		if copy(head, before); before == nil || !super.NextHeader(head[p.head:], k) {
			super.AppendHeader(append(head[:0], p.headers()...), b, k, true)
		}
		before = head
		from, to := super.Payload(k)
		u.iov[u.used], u.iov[u.used+1] = iovec(head), iovec(b[from:to])
		u.owner[u.packets] = p
		u.parts[u.n] = datagram{2, 1, size}
		u.packets++
		u.used += 2
		u.bytes += size
		u.n++
	}
}

// joins says whether size more bytes fit into the last datagram.
func (u *sendRun) joins(size int) bool {
	return u.fill > 0 && u.parts[u.n-1].bytes+size <= u.fill && u.bytes+size <= maxDatagram &&
		u.used < len(u.iov) && u.packets < len(u.owner)
}

// join puts p into the last datagram.
func (u *sendRun) join(p *Packet, b []byte) {
	d := &u.parts[u.n-1]
	u.iov[u.used] = iovec(b)
	u.owner[u.packets] = p
	d.iovecs++
	d.packets++
	d.bytes += len(b)
	u.used++
	u.packets++
	u.bytes += len(b)
}

// pads says whether the last datagram is so full that it is worth padding, so that one
// of size bytes and more can follow it.
func (u *sendRun) pads(size int) bool {
	if u.fill == 0 || size > u.fill || u.used+2 > len(u.iov) || u.packets == len(u.owner) {
		return false
	}
	last := u.parts[u.n-1].bytes
	return full(last, u.fill) && u.bytes-last+2*u.fill <= maxDatagram
}

// full says whether a datagram of size bytes is worth padding to fill.
func full(size, fill int) bool { return size*padShare >= fill*(padShare-1) }

// pad fills the last datagram up, so that another can follow.
func (u *sendRun) pad() {
	d := &u.parts[u.n-1]
	if rest := u.fill - d.bytes; rest > 0 {
		u.iov[u.used] = iovec(encap.Padding(rest))
		d.iovecs++
		d.bytes += rest
		u.used++
		u.bytes += rest
	}
}
