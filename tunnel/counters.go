package tunnel

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weft/tunnel/pathmtu"
	"weft/tunnel/port"
)

// tally is what a worker counts during one batch.
type tally struct {
	egress, ingress      Flow
	icmpSent, icmpDenied uint64
	fragmented           uint64
	completed            uint64
	reads, writes        uint64
}

// counters are a worker's totals. Only the worker writes them.
type counters struct {
	_                    [64]byte // keep the totals of other workers off this cache line
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

// add adds the tally of a batch, and clears it. It adds the received count last, so that a reader never sees
// more packets received than accounted for.
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
	c.egress.addTo(&s.Egress) // first, because add writes them last
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

// peerState is the part of a peer that outlives a Table, by outer address.
type peerState struct {
	txPackets, txBytes atomic.Uint64
	_                  [48]byte // different workers write the two directions
	rxPackets, rxBytes atomic.Uint64
	lastRx             atomic.Int64 // Unix seconds
	drops              [port.NumDropReasons]atomic.Uint64
	fairSeen           uint64 // packets at the last tick of Engine.fairLoop, its only user
	path               pathmtu.Path
	runsChecked        int64 // when the last check of runs began, Unix nanoseconds; guarded by runCheck.mu
	reach              reach
	unreachable        unreachableState
}

// strangers keeps some recent sources that belong to no peer. record skips a packet rather than wait for a
// reader.
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
