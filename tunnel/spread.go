package tunnel

import (
	"math/bits"
	"time"
)

// maxWorkers bounds what a large machine gives to the data plane by itself: the packets of
// a batch are shared out among the workers, and shorter batches cost more a packet.
const maxWorkers = 8

// DefaultWorkers is how many workers an engine has on procs CPUs (GOMAXPROCS): one for each
// direction, and from four CPUs on a power of two of them, up to eight, each with a queue of
// every port and both directions of its share of the flows. Three CPUs are too few
// for that: the pods need one. With another number than a power of two, some workers would get several of
// a peer's source ports and others none.
func DefaultWorkers(procs int) int {
	if procs < 4 {
		return min(2, max(1, procs))
	}
	return min(powerOfTwo(procs), maxWorkers)
}

// powerOfTwo is the largest that is not above n, which is at least 1.
func powerOfTwo(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// Queues is how many queues a port should have, for TUNOptions.Queues and
// UDPOptions.Queues: one for each worker, or a single one where the workers are one for each direction.
func (e *Engine) Queues() int {
	if len(e.workers) < 3 {
		return 1
	}
	return len(e.workers)
}

// Lanes is how many source ports the flows to one node of our kind should have, for
// UDPOptions.Lanes: as many as there are queues, rounded down to a power of two.
func (e *Engine) Lanes() int { return powerOfTwo(e.Queues()) }

// WorkerStats is what one worker moved: it shows how evenly flows are spread.
type WorkerStats struct {
	// Egress and Ingress are inner packets read, as Flow.Received is.
	Egress  uint64 `json:"egress"`
	Ingress uint64 `json:"ingress"`
	// Reads are system calls that brought packets, and Writes those that were to take some away. The answer to a ping
	// of ours is moved by none that counts.
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	// Wakeups is how often the worker woke, and Batches how many batches it moved.
	Wakeups uint64 `json:"wakeups"`
	Batches uint64 `json:"-"`
	// Busy is how long the worker did not wait for packets, until it last waited. A short look for what comes next,
	// after a batch, is part of it.
	Busy time.Duration `json:"busyNanoseconds"`
}

// Workers reads the counters of each worker.
func (e *Engine) Workers() []WorkerStats {
	l := make([]WorkerStats, len(e.workers))
	for i, w := range e.workers {
		t := &w.totals
		l[i] = WorkerStats{
			Egress: t.egress.received.Load(), Ingress: t.ingress.received.Load(), Wakeups: t.wakeups.Load(), Batches: t.batches.Load(),
			Reads: t.reads.Load(), Writes: t.writes.Load(), Busy: time.Duration(t.busy.Load()),
		}
	}
	return l
}
