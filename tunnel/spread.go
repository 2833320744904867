package tunnel

import (
	"math/bits"
	"time"
)

// maxWorkers bounds DefaultWorkers on a large machine. More workers share the same packets, so their batches
// are shorter and cost more per packet.
const maxWorkers = 8

// DefaultWorkers returns the number of workers for procs CPUs (GOMAXPROCS): one for one CPU, and one per
// direction for two or three, because the pods need a CPU too. From four on it is a power of two, at most
// eight. Then each worker has a queue of every port, and handles both directions of its flows. With any other
// number, some workers would get several of a peer's source ports and others none.
func DefaultWorkers(procs int) int {
	if procs < 4 {
		return min(2, max(1, procs))
	}
	return min(powerOfTwo(procs), maxWorkers)
}

// powerOfTwo returns the largest power of two that is at most n. n is at least 1.
func powerOfTwo(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// Queues returns the number of queues that a port should have (TUNOptions.Queues, UDPOptions.Queues). It is
// one per worker, or one in all if each direction has one worker.
func (e *Engine) Queues() int {
	if len(e.workers) < 3 {
		return 1
	}
	return len(e.workers)
}

// Lanes returns the number of source ports for flows to one weft node (UDPOptions.Lanes): the number of
// queues, rounded down to a power of two.
func (e *Engine) Lanes() int { return powerOfTwo(e.Queues()) }

// WorkerStats has the counters of one worker. They show how evenly flows are spread.
type WorkerStats struct {
	// Egress and Ingress count inner packets read, as Flow.Received does.
	Egress  uint64 `json:"egress"`
	Ingress uint64 `json:"ingress"`
	// Reads counts system calls that read packets, and Writes those that sent some. Neither includes answers to
	// probes.
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	// Wakeups counts how often the worker woke, and Batches the batches that it moved.
	Wakeups uint64 `json:"wakeups"`
	Batches uint64 `json:"-"`
	// Busy is the time that the worker was not blocked, up to its last wait. It includes polling after a batch.
	Busy time.Duration `json:"busyNanoseconds"`
}

// Workers returns the counters of each worker.
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
