package port

// Sizes of a Ring. Each batch reuses its memory from the front, so that the memory in use stays in the
// second-level cache: copying 64 KB takes three times as long if they are not cached. A batch has up to four
// superpackets, or a few hundred packets.
const (
	// MaxPacket is the largest packet or datagram, in bytes: the IP length field.
	MaxPacket = 65535
	// Headroom is the space before every packet that was read alone, in bytes. The headers are written there in
	// place: a virtio-net header (24), Ethernet (14), IPv6 (40), UDP (8), VXLAN (8) and inner Ethernet (14) take
	// 108.
	Headroom = 128
	// MaxReads is the maximum number of reads in one visit to a port. It bounds how long other ports wait. It is
	// also the limit of one UDP_SEGMENT send before Linux 6.9.
	MaxReads = 64
	// MaxRun is the maximum number of datagrams in one UDP_GRO read, which is the limit of one UDP_SEGMENT send
	// since Linux 6.9.
	MaxRun = 128
	// MaxSegments is the maximum number of segments in a superpacket. A pod chooses the segment size, down to
	// one byte, and each segment costs as much as a packet.
	MaxSegments = 1024
	// turnSegments ends a visit to a port once its superpackets have that many segments, because other ports
	// wait.
	turnSegments = 2 * MaxSegments

	// BatchSize is the maximum number of packets in a batch, not counting those of the last read.
	BatchSize = 256
	slotAlign = 64 // a cache line
	arenaSize = 4*(Headroom+MaxPacket+slotAlign) + Headroom + MaxPacket
)

// Ring is a worker's memory for one batch: slots for packets in one arena with headroom, and the arguments of
// its system calls. A port fills it, the worker decides about every packet in it, and other ports drain it
// before it is filled again. It is not safe for concurrent use.
type Ring struct {
	Worker int // index of the worker that owns it

	arena    []byte
	slots    [BatchSize + MaxRun]Packet
	n        int // slots committed in this batch
	reads    int // number of reads in this batch
	segments int // upper bound of the segments of this batch's superpackets
	Writes   int // system calls that wrote packets since the last Reset
	used     int // bytes of arena committed in this batch

	// more has packets that shared a datagram with another.
	more     [BatchSize]Packet
	moreUsed int // number of slots of more in use

	now  int64 // time of the batch, Unix nanoseconds
	Lost int   // datagrams beyond MaxRun in one read

	// reply is a packet that the worker creates: an ICMP error, a segment or a fragment.
	reply   Packet
	segment Packet // a segment of a superpacket while it is fragmented

	io       syscallArea
	portable *portableArea // nil except on path portable
}

// NewRing allocates a ring of about 400 KB.
func NewRing() *Ring {
	r := &Ring{arena: make([]byte, arenaSize)}
	r.reply.buf = make([]byte, Headroom+MaxPacket)
	r.io.init()
	r.io.send.begin(nil)
	return r
}

// Reset empties the ring for a batch at now, in Unix nanoseconds.
func (r *Ring) Reset(now int64) {
	r.now = now
	r.n, r.reads, r.segments, r.Writes, r.used, r.moreUsed, r.Lost = 0, 0, 0, 0, 0, 0, 0
	r.io.patience = turnPatience
}

// Slot returns the next free slot to read a packet into, or nil if the batch is full. It returns the same
// slot until that is committed.
func (r *Ring) Slot() *Packet {
	if r.n >= BatchSize || r.reads == MaxReads || r.segments >= turnSegments ||
		len(r.arena)-r.used < Headroom+MaxPacket {
		return nil
	}
	p := &r.slots[r.n]
	p.buf = r.arena[r.used : r.used+Headroom+MaxPacket : r.used+Headroom+MaxPacket]
	p.Reset()
	return p
}

// Commit adds the slot that Slot returned to the batch, with the n bytes that were read into it. SegSize must
// be set before if it is a superpacket.
func (r *Ring) Commit(n int) {
	p := &r.slots[r.n]
	p.end = p.off + n
	p.Size = n
	if p.SegSize > 0 {
		r.segments += n / p.SegSize
	}
	r.advance(n)
	r.n++
}

// CommitRun adds the slot that Slot returned to the batch, as one packet for each datagram of size bytes in
// the n bytes read (UDP_GRO). The last may be shorter. All get the slot's description. Bytes beyond MaxRun
// datagrams are dropped, and counted in Lost.
func (r *Ring) CommitRun(n, size int) {
	first := &r.slots[r.n]
	if most := MaxRun * size; n > most {
		r.Lost += (n - most + size - 1) / size
		n = most
	}
	for off := 0; off < n; off += size {
		p := &r.slots[r.n]
		if off > 0 {
			p.state = first.state
			p.parsed = false
			p.off = Headroom + off
		}
		p.Size = min(size, n-off)
		p.end = p.off + p.Size
		r.n++
	}
	r.advance(n)
}

// addBuffer adds n bytes after the headroom of buf, which the port owns, to the batch.
func (r *Ring) addBuffer(buf []byte, n int) *Packet {
	p := &r.slots[r.n]
	p.buf = buf
	p.Reset()
	p.end, p.Size = p.off+n, n
	r.used += Headroom + n
	r.n++
	return p
}

func (r *Ring) advance(n int) {
	r.used += (Headroom + n + slotAlign - 1) &^ (slotAlign - 1)
	r.reads++
}

// Filled returns the number of committed packets, of reads, and of bytes of memory in use.
func (r *Ring) Filled() (packets, reads, bytes int) { return r.n, r.reads, r.used }

// Batch returns the committed packets.
func (r *Ring) Batch() []Packet { return r.slots[:r.n] }

// Next returns a slot for the n bytes after p in its datagram, or nil if all slots are in use.
func (r *Ring) Next(p *Packet, n int) *Packet {
	if r.moreUsed == len(r.more) {
		return nil
	}
	q := &r.more[r.moreUsed]
	r.moreUsed++
	q.state = state{buf: p.buf, off: p.end, end: p.end + n, Outer: p.Outer, OuterECN: p.OuterECN, Segments: 1,
		Size: n}
	return q
}

// FreeNext frees all slots that Next returned.
func (r *Ring) FreeNext() { r.moreUsed = 0 }

// Segment returns the packet for a segment that is fragmented. Its memory is allocated at first use.
func (r *Ring) Segment() *Packet {
	if r.segment.buf == nil {
		r.segment.buf = make([]byte, Headroom+MaxPacket)
	}
	return &r.segment
}

// Scratch returns the kth of several packets of n bytes for one send. They share the memory of the packet
// that Reply returns, and need a finished batch.
func (r *Ring) Scratch(k, n int) *Packet {
	p := &r.more[k]
	p.state = state{buf: r.reply.buf, off: k * n, end: (k + 1) * n, Segments: 1}
	return p
}

// Reply returns the packet that the worker creates itself, emptied.
func (r *Ring) Reply() *Packet {
	r.reply.Reset()
	return &r.reply
}
