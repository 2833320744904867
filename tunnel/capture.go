package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// MaxCaptures is how many captures an engine serves at once. Each costs memory, and a copy of every selected
// packet.
const MaxCaptures = 4

// Sizes of a capture's memory: about 5 MB with up to eight workers. A worker's share holds at least eight of
// the largest packets, or the small packets of a few batches.
const (
	captureBytes   = 4 << 20 // for the packets of all workers
	captureRecords = 4096    // for all workers
	leastPackets   = 8
	leastRecords   = 2 * (port.BatchSize + port.MaxRun + port.BatchSize)
)

// ErrTooManyCaptures means that MaxCaptures captures are running.
var ErrTooManyCaptures = fmt.Errorf("%d captures are running; end one of them first", MaxCaptures)

// CaptureOptions selects the packets that a capture copies.
type CaptureOptions struct {
	// Inner selects packets that were passed on, and Dropped those that were dropped. Outer selects datagrams
	// that the underlay's port received or sent.
	Inner, Outer, Dropped bool
	// Peers limits the capture to packets of the peers with these outer addresses. Empty means all packets.
	Peers []netip.Addr
	// Match, if not nil, reports whether to copy a packet, which begins with its IP header. Workers call it
	// concurrently for each packet. It must not allocate, block or keep the packet.
	Match func(packet []byte) bool
	// SnapLen is the largest number of bytes copied of a packet. 0 means all.
	SnapLen int
}

// Captured is a copied packet.
type Captured struct {
	// Time is when the packet's batch was read.
	Time time.Time
	// Outbound marks packets that this node sent. Outer marks datagrams, which begin with an outer IP header.
	// The capture makes the outer headers from the addresses, so identification and checksum are 0.
	Outbound, Outer bool
	// Dropped means that the packet was dropped for Reason.
	Dropped bool
	Reason  port.DropReason
	// Peer is the name of the other node, and Addr its outer address. Both are zero for a packet without a peer.
	Peer string
	Addr netip.AddrPort
	// Segments is the number of segments of a superpacket, and SegmentSize the size of their payload in bytes.
	// Both are 0 for any other packet.
	Segments, SegmentSize int
	// Length is the length of the packet in bytes, and Data the part that was copied. borrowed: Data is valid
	// until the next call of Next.
	Length int
	Data   []byte
}

// Capture copies packets that pass through an Engine. Workers never wait for the reader: a packet without
// space is counted and not copied. Only one goroutine may call Next; the other methods are safe for
// concurrent use.
type Capture struct {
	engine  *Engine
	options CaptureOptions
	rings   []*captureRing // one per worker
	reading *captureRing   // the ring of the record that the reader holds
}

// captureSet is the immutable set of running captures.
type captureSet struct{ list []*Capture }

// Capture starts a capture, which the caller ends with Close. It fails with ErrTooManyCaptures.
func (e *Engine) Capture(o CaptureOptions) (*Capture, error) {
	if !o.Inner && !o.Outer && !o.Dropped {
		return nil, errors.New("capture: no packets are selected")
	}
	if o.SnapLen <= 0 || o.SnapLen > port.MaxPacket {
		o.SnapLen = port.MaxPacket
	}
	o.Peers = slices.Clone(o.Peers)
	c := &Capture{engine: e, options: o}
	e.mu.Lock()
	defer e.mu.Unlock()
	var next captureSet
	if now := e.captures.Load(); now != nil {
		next.list = slices.Clone(now.list)
	}
	if len(next.list) >= MaxCaptures { // before it allocates: many clients may ask at once
		return nil, ErrTooManyCaptures
	}
	for range e.workers {
		c.rings = append(c.rings, newCaptureRing(len(e.workers), o.SnapLen))
	}
	next.list = append(next.list, c)
	e.captures.Store(&next)
	return c, nil
}

// Close ends the capture. Packets that were copied before can still be read.
func (c *Capture) Close() {
	e := c.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.captures.Load()
	if now == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(now.list), func(x *Capture) bool { return x == c })
	if len(list) == 0 {
		e.captures.Store(nil) // captures cost nothing from the next batch on
		return
	}
	e.captures.Store(&captureSet{list})
}

// Ended reports whether the engine has ended. The capture then gets no more packets.
func (c *Capture) Ended() bool {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	return c.engine.closed.Load()
}

// Missed returns the number of selected packets that were not copied because the reader was too slow.
func (c *Capture) Missed() (n uint64) {
	for _, r := range c.rings {
		n += r.missed.Load()
	}
	return n
}

// Next returns the oldest unread packet, or false if there is none. It does not wait.
func (c *Capture) Next() (Captured, bool) {
	if c.reading != nil {
		c.reading.tail.Add(1)
		c.reading = nil
	}
	var oldest *captureRecord
	for _, r := range c.rings {
		if rec := r.first(); rec != nil && (oldest == nil || rec.time < oldest.time) {
			c.reading, oldest = r, rec
		}
	}
	if oldest == nil {
		return Captured{}, false
	}
	return oldest.captured(c.reading.data[oldest.from : oldest.from+oldest.n]), true
}

// first returns the oldest unread record, or nil.
func (r *captureRing) first() *captureRecord {
	if r.tail.Load() == r.head.Load() {
		return nil
	}
	return &r.records[r.tail.Load()%uint64(len(r.records))]
}

// captureRing is one worker's share of a capture. The worker writes and the reader reads it, without locks.
type captureRing struct {
	records []captureRecord
	data    []byte
	head    atomic.Uint64 // the reader may read records before head
	tail    atomic.Uint64 // the worker may reuse records before tail
	missed  atomic.Uint64

	// Used by the worker only: records before next are written, and those from head on are not yet published.
	// free is the offset in data of the next record's bytes.
	next uint64
	free int
}

// captureRecord describes a packet in a captureRing.
type captureRecord struct {
	time                  int64
	addr                  netip.AddrPort
	peer                  string
	from, n, length       int // in data
	segments, segSize     int
	csumStart, csumOffset int
	partial               bool
	outbound, outer       bool
	dropped               bool
	reason                port.DropReason
}

// captured returns the record for the reader. b is valid until the reader takes the next record.
func (r *captureRecord) captured(b []byte) Captured {
	if r.partial && r.n == r.length { // a port or a device completes it later
		encap.FinishChecksum(b, r.csumStart, r.csumOffset)
	}
	return Captured{
		Time: time.Unix(0, r.time), Outbound: r.outbound, Outer: r.outer, Dropped: r.dropped, Reason: r.reason,
		Peer: r.peer, Addr: r.addr, Segments: r.segments, SegmentSize: r.segSize, Length: r.length, Data: b,
	}
}

// newCaptureRing returns one worker's ring. Truncated packets need less memory.
func newCaptureRing(workers, snapLen int) *captureRing {
	records := max(leastRecords, captureRecords/workers)
	data := min(max(leastPackets*(port.MaxPacket+1), captureBytes/workers), records*(snapLen+1))
	return &captureRing{data: make([]byte, data), records: make([]captureRecord, records)}
}

// room returns n bytes for the next record, or nil if the ring is full.
func (r *captureRing) room(n int) []byte {
	tail := r.tail.Load()
	if r.next-tail >= uint64(len(r.records)) {
		return nil
	}
	if r.next == tail {
		r.free = 0
		return r.data[:n]
	}
	oldest := r.records[tail%uint64(len(r.records))].from
	switch {
	case r.free > oldest && r.free+n <= len(r.data):
	case r.free > oldest && n < oldest: // wrap around
		r.free = 0
	case r.free <= oldest && r.free+n < oldest:
	default:
		return nil
	}
	return r.data[r.free : r.free+n]
}

// publish makes all written records visible to the reader.
func (r *captureRing) publish() {
	if r.head.Load() != r.next {
		r.head.Store(r.next)
	}
}
