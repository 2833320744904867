package tunnel

import (
	"math/bits"
	"time"
)

// maxWorkers bounds what a large machine gives to the data plane by itself: the packets of
// a batch are shared out among the workers, and shorter batches cost more a packet.
const maxWorkers = 8

// DefaultWorkers returns the number of workers for procs CPUs (GOMAXPROCS): one for one CPU, and one for each
// direction for two or three, because the pods need a CPU too. From four on it is a power of two, at most
// eight; each worker has a queue of every port, and both directions of its share of the flows. With another
// number, some workers would get several of a peer's source ports and others none.
func DefaultWorkers(procs int) int {
	if procs < 4 {
		return min(2, max(1, procs))
	}
	return min(powerOfTwo(procs), maxWorkers)
}

// powerOfTwo is the largest that is not above n, which is at least 1.
func powerOfTwo(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// Queues returns the number of queues that a port should have (TUNOptions.Queues, UDPOptions.Queues): one for
// each worker, or a single one if there is one worker for each direction.
func (e *Engine) Queues() int {
	if len(e.workers) < 3 {
		return 1
	}
	return len(e.workers)
}

// Lanes returns the number of source ports for flows to one weft node (UDPOptions.Lanes): the number of
// queues, rounded down to a power of two.
func (e *Engine) Lanes() int { return powerOfTwo(e.Queues()) }

// WorkerStats has the counters of one worker. It shows how evenly flows are spread.
type WorkerStats struct {
	// Egress and Ingress are inner packets read, as Flow.Received is.
	Egress  uint64 `json:"egress"`
	Ingress uint64 `json:"ingress"`
	// Reads counts system calls that brought packets, and Writes those that sent some. Answers to our own
	// probes are in neither.
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	// Wakeups is how often the worker woke, and Batches how many batches it moved.
	Wakeups uint64 `json:"wakeups"`
	Batches uint64 `json:"-"`
	// Busy is the time in which the worker did not wait for packets, up to its last wait. It includes a short
	// look for the next packets after a batch.
	Busy time.Duration `json:"busyNanoseconds"`
}

// Workers reads the counters of each worker.
func (e *Engine) Workers() []WorkerStats {
	l := make([]WorkerStats, len(e.workers))
	for i, w := range e.workers {
		t := &w.totals
		l[i] = WorkerStats{
			Egress: t.egress.received.Load(), Ingress: t.ingress.received.Load(), Wakeups: t.wakeups.Load(),
			Batches: t.batches.Load(),
			Reads:   t.reads.Load(), Writes: t.writes.Load(), Busy: time.Duration(t.busy.Load()),
		}
	}
	return l
}
