package tunnel

import "sync/atomic"

// Arrivals counts datagrams that arrived in bulk, which is in batches of several large ones.
type Arrivals struct {
	// Alone came in batches of which every read brought one, Joined in those of which a read
	// brought a run that the kernel had joined.
	Alone, Joined uint64
}

const (
	// From aloneFrom large datagrams on, a batch without a run says that nothing joins them: they
	// waited beside each other.
	aloneFrom = 4
	// aloneMost is above any datagram and below most superpackets, in bytes: a link's MTU of 9000, and room.
	aloneMost = 9216
	// unjoinedEvery is after how many datagrams that came alone the owner is told.
	unjoinedEvery = 4096
)

// arrivals are those of an engine. Workers write to it once a batch of bulk.
type arrivals struct{ alone, joined atomic.Uint64 }

// Arrivals returns a snapshot of the counters.
func (e *Engine) Arrivals() Arrivals {
	return Arrivals{Alone: e.incoming.alone.Load(), Joined: e.incoming.joined.Load()}
}

// arrived notes a batch that was read from an underlay.
func (w *worker) arrived() {
	r, of := w.ring, &w.engine.incoming
	switch n := uint64(r.n); {
	case r.n > r.reads:
		of.joined.Add(n)
	case r.n >= aloneFrom && r.used >= r.n*(Headroom+smallPacket) && r.used <= r.n*(Headroom+aloneMost):
		now := of.alone.Add(n)
		if told := w.engine.cfg.Unjoined; told != nil && now/unjoinedEvery != (now-n)/unjoinedEvery {
			told()
		}
	}
}
