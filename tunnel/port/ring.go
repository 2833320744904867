package port

// Sizes of a Ring. Its memory is used from the front again for every batch, so
// that what is touched stays in the second-level cache: a cold 64 KB copy costs
// three times a hot one. A batch is four superpackets, or some hundred packets.
const (
	// MaxPacket is the largest packet or datagram, in bytes: the IP length field.
	MaxPacket = 65535
	// Headroom is free before every packet that was read by itself, in bytes, so that
	// headers are put on in place: a virtio-net header (24), Ethernet (14), IPv6
	// (40), UDP (8), VXLAN (8) and inner Ethernet (14) make 108.
	Headroom = 128
	// MaxReads is the most reads that one visit to a port makes. It bounds how long
	// other ports wait, and is what one UDP_SEGMENT send took before Linux 6.9.
	MaxReads = 64
	// MaxRun is the most datagrams that one UDP_GRO read brings: what one UDP_SEGMENT
	// send takes since Linux 6.9.
	MaxRun = 128
	// MaxSegments is the most packets that one superpacket may stand for. A pod chooses the segment size, down
	// to one byte, and each segment costs us as much as a packet.
	MaxSegments = 1024
	// turnSegments ends a visit to a port once its superpackets stand for so many packets, because other ports
	// wait meanwhile.
	turnSegments = 2 * MaxSegments

	// BatchSize is the most packets of a batch, but for the last read.
	BatchSize = 256
	slotAlign = 64 // a cache line
	arenaSize = 4*(Headroom+MaxPacket+slotAlign) + Headroom + MaxPacket
)

// Ring is a worker's memory for one batch: slots for packets, cut from one arena
// with headroom, and the arguments of its system calls. A port fills it, the
// worker decides about every packet in it, and it is drained to other ports
// before it is filled again. It belongs to one worker and is not safe for
// concurrent use.
type Ring struct {
	Worker int // whose it is: its number

	arena  []byte
	slots  [BatchSize + MaxRun]Packet
	n      int // slots committed in this batch
	reads  int // how many reads they came from
	cuts   int // how many packets the superpackets among them stand for, at most
	Writes int // system calls that were to take packets away since it was filled
	used   int // bytes of arena committed in this batch

	// more are packets that shared a datagram with the one before.
	more  [BatchSize]Packet
	extra int // how many of them are in use

	now  int64 // of the batch, Unix nanoseconds
	Lost int   // datagrams beyond MaxRun in one read

	// reply is a packet that we make ourselves: an ICMP error, or a fragment.
	reply   Packet
	segment Packet // of a superpacket, while it is sent in fragments

	io    syscallArea
	apart *apartArea // nil but on path portable
}

// NewRing allocates a ring, about 400 KB.
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
	r.n, r.reads, r.cuts, r.Writes, r.used, r.extra, r.Lost = 0, 0, 0, 0, 0, 0, 0
	r.io.patience = turnPatience
}

// Slot returns the next free slot to read a packet into, or nil when the batch is
// full. The same slot is returned until it is committed.
func (r *Ring) Slot() *Packet {
	if r.n >= BatchSize || r.reads == MaxReads || r.cuts >= turnSegments ||
		len(r.arena)-r.used < Headroom+MaxPacket {
		return nil
	}
	p := &r.slots[r.n]
	p.buf = r.arena[r.used : r.used+Headroom+MaxPacket : r.used+Headroom+MaxPacket]
	p.Renew()
	return p
}

// Commit makes the slot that Slot returned part of the batch, with the n bytes
// that were read into it. The slot says whether it is a superpacket.
func (r *Ring) Commit(n int) {
	p := &r.slots[r.n]
	p.end = p.off + n
	p.Size = n
	if p.SegSize > 0 {
		r.cuts += n / p.SegSize
	}
	r.take(n)
	r.n++
}

// CommitRun makes the slot that Slot returned as many packets of the batch as the n bytes read into it are
// datagrams of size bytes, of which the last may be shorter (UDP_GRO). All have what was noted in the slot.
// Bytes beyond maxRun are lost, and counted.
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
	r.take(n)
}

// place makes n bytes that stand behind the headroom of buf, which is the port's, a packet of the batch.
func (r *Ring) place(buf []byte, n int) *Packet {
	p := &r.slots[r.n]
	p.buf = buf
	p.Renew()
	p.end, p.Size = p.off+n, n
	r.used += Headroom + n
	r.n++
	return p
}

func (r *Ring) take(n int) {
	r.used += (Headroom + n + slotAlign - 1) &^ (slotAlign - 1)
	r.reads++
}

// Filled is how many packets were committed, in how many reads, and how many bytes of memory they take.
func (r *Ring) Filled() (packets, reads, bytes int) { return r.n, r.reads, r.used }

// Batch is what was committed.
func (r *Ring) Batch() []Packet { return r.slots[:r.n] }

// Next returns a slot for the n bytes that stand behind p in its datagram; nil if all are in use.
func (r *Ring) Next(p *Packet, n int) *Packet {
	if r.extra == len(r.more) {
		return nil
	}
	q := &r.more[r.extra]
	r.extra++
	q.state = state{buf: p.buf, off: p.end, end: p.end + n, Outer: p.Outer, OuterECN: p.OuterECN, Segments: 1,
		Size: n}
	return q
}

// FreeNext frees the slots that Next has returned.
func (r *Ring) FreeNext() { r.extra = 0 }

// Segment returns memory for a segment. It is allocated at first use.
func (r *Ring) Segment() *Packet {
	if r.segment.buf == nil {
		r.segment.buf = make([]byte, Headroom+MaxPacket)
	}
	return &r.segment
}

// Lend returns a packet of n bytes, the k-th of several for one send, whose memory is that of a batch that is
// done with and of the packet that we make ourselves.
func (r *Ring) Lend(k, n int) *Packet {
	p := &r.more[k]
	p.state = state{buf: r.reply.buf, off: k * n, end: (k + 1) * n, Segments: 1}
	return p
}

// Reply empties the packet that we make ourselves.
func (r *Ring) Reply() *Packet {
	r.reply.Renew()
	return &r.reply
}
