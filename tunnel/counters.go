package tunnel

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weft/tunnel/pathmtu"
	"weft/tunnel/port"
)

// tally is what a worker counts during one batch, in plain integers.
type tally struct {
	egress, ingress      Flow
	icmpSent, icmpDenied uint64
	fragmented           uint64
	completed            uint64
	reads, writes        uint64
}

// counters are a worker's totals. One goroutine writes them; any may read.
type counters struct {
	_                    [64]byte // keep another worker's totals off our cache line
	egress, ingress      flowCounters
	icmpSent, icmpDenied atomic.Uint64
	fragmented           atomic.Uint64
	completed            atomic.Uint64
	wakeups, batches     atomic.Uint64
	reads, writes        atomic.Uint64
	busy                 atomic.Int64 // nanoseconds
	_                    [64]byte
}

type flowCounters struct {
	received, delivered           atomic.Uint64
	receivedBytes, deliveredBytes atomic.Uint64
	drops                         [port.NumDropReasons]atomic.Uint64
}

// add publishes a batch's tally and empties it. The received count is published last, so a reader of it also
// sees what became of the packet.
func (c *counters) add(t *tally) {
	addTo(&c.icmpSent, t.icmpSent)
	addTo(&c.icmpDenied, t.icmpDenied)
	addTo(&c.fragmented, t.fragmented)
	addTo(&c.completed, t.completed)
	c.batches.Add(1)
	addTo(&c.reads, t.reads)
	addTo(&c.writes, t.writes)
	c.egress.add(&t.egress)
	c.ingress.add(&t.ingress)
	*t = tally{}
}

func (c *flowCounters) add(f *Flow) {
	if f.Received == 0 {
		return
	}
	addTo(&c.delivered, f.Delivered)
	addTo(&c.deliveredBytes, f.DeliveredBytes)
	if f.Delivered != f.Received {
		for r, n := range f.Drops {
			addTo(&c.drops[r], n)
		}
	}
	c.receivedBytes.Add(f.ReceivedBytes)
	c.received.Add(f.Received)
}

func addTo(c *atomic.Uint64, n uint64) {
	if n != 0 {
		c.Add(n)
	}
}

func (c *counters) addTo(s *Stats) {
	c.egress.addTo(&s.Egress) // first, as add has them last
	c.ingress.addTo(&s.Ingress)
	s.ICMPSent += c.icmpSent.Load()
	s.ICMPSuppressed += c.icmpDenied.Load()
	s.Fragmented += c.fragmented.Load()
	s.Completed += c.completed.Load()
	s.Wakeups += c.wakeups.Load()
	s.Batches += c.batches.Load()
}

func (c *flowCounters) addTo(f *Flow) {
	f.Received += c.received.Load()
	f.Delivered += c.delivered.Load()
	f.ReceivedBytes += c.receivedBytes.Load()
	f.DeliveredBytes += c.deliveredBytes.Load()
	for r := range f.Drops {
		f.Drops[r] += c.drops[r].Load()
	}
}

// peerState is what outlives a Table: the counters and the path MTU of the peer
// at one outer address.
type peerState struct {
	txPackets, txBytes atomic.Uint64
	_                  [48]byte // the two directions are written by different workers
	rxPackets, rxBytes atomic.Uint64
	lastRx             atomic.Int64 // Unix seconds
	drops              [port.NumDropReasons]atomic.Uint64
	fairSeen           uint64 // packets at the last tick of Engine.keepFair, which alone uses it
	path               pathmtu.Path
	runsAsked          int64 // when a check of runs began, Unix nanoseconds; runCheck.mu guards it
	reach              reach
	refusal            refusal
}

// strangers remembers a few of the outer sources that belong to no peer, for
// weft peers. Recording is left out while a reader has the lock, rather than wait for it.
type strangers struct {
	mu   sync.Mutex
	list [16]Stranger
}

func (s *strangers) record(a netip.Addr, now int64) {
	if !s.mu.TryLock() {
		return
	}
	oldest := 0
	for i := range s.list {
		if s.list[i].Addr == a {
			oldest = i
			break
		}
		if s.list[i].LastRx.Before(s.list[oldest].LastRx) {
			oldest = i
		}
	}
	e := &s.list[oldest]
	if e.Addr != a {
		*e = Stranger{Addr: a}
	}
	e.Packets++
	e.LastRx = time.Unix(0, now)
	s.mu.Unlock()
}

func (s *strangers) appendTo(l []Stranger) []Stranger {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.list {
		if e.Addr.IsValid() {
			l = append(l, e)
		}
	}
	return l
}
