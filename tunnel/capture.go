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

// MaxCaptures is how many captures an engine serves at once. Each costs memory, and each of them a copy of
// every packet that it wants.
const MaxCaptures = 4

// Sizes of a capture's memory, some 5 MB with up to eight workers. A worker's share holds at least eight of
// the largest packets, and as many small ones as a few batches have.
const (
	captureBytes   = 4 << 20 // for the packets of all workers together
	captureRecords = 4096    // packets that all shares hold together
	leastPackets   = 8
	leastRecords   = 2 * (port.BatchSize + port.MaxRun + port.BatchSize)
)

// ErrTooManyCaptures means that MaxCaptures captures run already.
var ErrTooManyCaptures = fmt.Errorf("%d captures are under way already: end one of them first", MaxCaptures)

// CaptureOptions selects the packets that a capture copies.
type CaptureOptions struct {
	// Inner selects packets that were passed on, Dropped those that were dropped. Outer selects the datagrams
	// on the underlay, as they arrived or as they were handed to the underlay's port.
	Inner, Outer, Dropped bool
	// Peers limits the capture to packets of the peers with these outer addresses. Empty means all packets.
	Peers []netip.Addr
	// Match, if not nil, reports whether to copy a packet, which begins with its IP header. Workers call it
	// concurrently for each packet. It must not allocate, block or keep the packet.
	Match func(packet []byte) bool
	// SnapLen is how many bytes of a packet are copied; 0 means all.
	SnapLen int
}

// Captured is a packet that was copied.
type Captured struct {
	// Time is the time at which its batch was read.
	Time time.Time
	// Outbound marks packets from this node, and Outer datagrams with their outer IP and UDP header. The
	// capture makes the outer header from the addresses, so its identification and checksum are 0.
	Outbound, Outer bool
	// Dropped means that the packet was dropped for Reason.
	Dropped bool
	Reason  port.DropReason
	// Peer is the name of the other node, and Addr its outer address; they are zero for a packet that has none.
	Peer string
	Addr netip.AddrPort
	// Segments is the number of packets that a superpacket stands for, with up to SegmentSize bytes of
	// payload each. Both are 0 for any other packet.
	Segments, SegmentSize int
	// Length is the length of the packet in bytes, and Data the part that was copied. borrowed: Data is valid
	// until the next call of Next.
	Length int
	Data   []byte
}

// Capture copies packets that pass through an Engine. Workers never wait for the reader: a packet that does
// not fit is counted and not copied. One goroutine may call Next; the other methods are safe for concurrent
// use.
type Capture struct {
	engine *Engine
	want   CaptureOptions
	rings  []*captureRing // one a worker
	taken  *captureRing   // whose record the reader holds
}

// captures are those that are under way; it is immutable.
type captures struct{ list []*Capture }

// Capture begins a capture. It fails with ErrTooManyCaptures, and the caller ends it with Close.
func (e *Engine) Capture(o CaptureOptions) (*Capture, error) {
	if !o.Inner && !o.Outer && !o.Dropped {
		return nil, errors.New("capture: neither inner packets nor outer nor dropped ones are wanted")
	}
	if o.SnapLen <= 0 || o.SnapLen > port.MaxPacket {
		o.SnapLen = port.MaxPacket
	}
	o.Peers = slices.Clone(o.Peers)
	c := &Capture{engine: e, want: o}
	e.mu.Lock()
	defer e.mu.Unlock()
	var next captures
	if now := e.looks.Load(); now != nil {
		next.list = slices.Clone(now.list)
	}
	if len(next.list) >= MaxCaptures { // before there is memory for it: a thousand clients may ask at once
		return nil, ErrTooManyCaptures
	}
	for range e.workers {
		c.rings = append(c.rings, newCaptureRing(len(e.workers), o.SnapLen))
	}
	next.list = append(next.list, c)
	e.looks.Store(&next)
	return c, nil
}

// Close ends the capture. Copied packets can still be read.
func (c *Capture) Close() {
	e := c.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.looks.Load()
	if now == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(now.list), func(x *Capture) bool { return x == c })
	if len(list) == 0 {
		e.looks.Store(nil) // from the next batch on, nobody looks
		return
	}
	e.looks.Store(&captures{list})
}

// Ended reports whether the engine has ended. After that, the capture gets no more packets.
func (c *Capture) Ended() bool {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	return c.engine.closed.Load()
}

// Missed returns the number of packets that were selected and not copied, because the reader was too slow.
func (c *Capture) Missed() (n uint64) {
	for _, r := range c.rings {
		n += r.missed.Load()
	}
	return n
}

// Next returns the oldest packet that was not read yet, or false if there is none. It does not wait. A worker
// with many packets does not delay the packets of the others.
func (c *Capture) Next() (Captured, bool) {
	if c.taken != nil {
		c.taken.tail.Add(1)
		c.taken = nil
	}
	var oldest *captureRecord
	for _, r := range c.rings {
		if rec := r.first(); rec != nil && (oldest == nil || rec.time < oldest.time) {
			c.taken, oldest = r, rec
		}
	}
	if oldest == nil {
		return Captured{}, false
	}
	return oldest.captured(c.taken.data[oldest.from : oldest.from+oldest.n]), true
}

// first is the reader's oldest record; nil if there is none now.
func (r *captureRing) first() *captureRecord {
	if r.tail.Load() == r.head.Load() {
		return nil
	}
	return &r.records[r.tail.Load()%uint64(len(r.records))]
}

// captureRing is one worker's share of a capture: the worker writes, the reader of the capture reads, neither
// waits.
type captureRing struct {
	records []captureRecord
	data    []byte
	head    atomic.Uint64 // records before it are the reader's
	tail    atomic.Uint64 // records before it are the worker's again
	missed  atomic.Uint64

	// The worker's own: records before next are written, but only those before head are shown; free is where
	// the next one's bytes go.
	next uint64
	free int
}

// captureRecord is a packet in a captureRing.
type captureRecord struct {
	time                  int64
	addr                  netip.AddrPort
	peer                  string
	from, n, length       int // of data
	segments, segSize     int
	csumStart, csumOffset int
	partial               bool
	outbound, outer       bool
	dropped               bool
	reason                port.DropReason
}

// captured returns what the reader is told. b is the reader's until it takes the next.
func (r *captureRecord) captured(b []byte) Captured {
	if r.partial && r.n == r.length { // an edge of ours, or a device, fills it in later
		encap.FinishChecksum(b, r.csumStart, r.csumOffset)
	}
	return Captured{
		Time: time.Unix(0, r.time), Outbound: r.outbound, Outer: r.outer, Dropped: r.dropped, Reason: r.reason,
		Peer: r.peer, Addr: r.addr, Segments: r.segments, SegmentSize: r.segSize, Length: r.length, Data: b,
	}
}

// newCaptureRing makes the share of one of so many workers. Packets that are cut need less room.
func newCaptureRing(workers, snapLen int) *captureRing {
	records := max(leastRecords, captureRecords/workers)
	data := min(max(leastPackets*(port.MaxPacket+1), captureBytes/workers), records*(snapLen+1))
	return &captureRing{data: make([]byte, data), records: make([]captureRecord, records)}
}

// room returns n bytes for a record that is not yet written; nil if the reader has not made room.
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
	case r.free > oldest && n < oldest: // from the front again
		r.free = 0
	case r.free <= oldest && r.free+n < oldest:
	default:
		return nil
	}
	return r.data[r.free : r.free+n]
}

// publish shows the reader all that was written.
func (r *captureRing) publish() {
	if r.head.Load() != r.next {
		r.head.Store(r.next)
	}
}
