package tunnel

import (
	"sync/atomic"
	"time"
	"unsafe"

	"weft/tunnel/port"

	"golang.org/x/sys/unix"
)

// Policies of a worker after a batch, before it blocks. To block and be woken costs more than any packet:
// some microseconds on each side. With sparse traffic the answer to what was just sent is near, so the worker
// reads its queues a few times more, and lets others run in between. With many small packets a pause is
// better: a worker that wakes a little later finds a longer batch, and has fewer wakeups a packet.
const (
	// lingerReads is how often a worker reads again; each time it yields the CPU to whoever
	// waits for it.
	lingerReads = 80
	// lingerMost is how long it does so, however much there is to read: only the next wait reports the
	// other ports, and whether to end. A turn that meets a link that is stuck takes turnPatience.
	lingerMost = 5 * time.Millisecond
	// sparse is the longest gap between packets for which a worker waits.
	sparse = time.Millisecond
	// bulkLasts is how long there is bulk after a batch that was bulk. In bulk nobody waits for a
	// single packet, and yields only cost.
	bulkLasts = time.Millisecond
	// From bulkPackets packets or bulkBytes bytes on, a batch is bulk.
	bulkPackets = 8
	bulkBytes   = 8 << 10
	// A batch of more than fewSmall packets of less than smallPacket bytes each is followed by a pause of
	// moderation. Timer slack (50 µs by default) comes on top of it.
	fewSmall    = 4
	smallPacket = 512
	moderation  = 50 * time.Microsecond
)

// load is what the workers of an engine tell each other of the traffic.
type load struct{ bulkAt atomic.Int64 } // engine time of the last bulk batch, roughly

// bulk says whether there was bulk a moment ago.
func (l *load) bulk(now int64) bool { return now-l.bulkAt.Load() < int64(bulkLasts) }

// observe notes a batch of n packets that was read.
func (w *worker) observe(n, reads, bytes int) {
	w.small = n > fewSmall && bytes < n*(port.Headroom+smallPacket) && n < port.BatchSize &&
		reads < port.MaxReads
	if n < bulkPackets && bytes < bulkBytes {
		return
	}
	if l := &w.engine.load; w.now-l.bulkAt.Load() > int64(bulkLasts/4) { // others read it: write it seldom
		l.bulkAt.Store(w.now)
	}
}

// warm is a queue that had packets a moment ago.
type warm struct {
	id queueID
	at int64 // engine time of its last batch
}

// warmed notes that the queue that was just read had packets, in place of the one that is
// without for longest.
func (w *worker) warmed(id queueID) {
	oldest := 0
	for i := range w.warm {
		if w.warm[i].id == id {
			oldest = i
			break
		}
		if w.warm[i].at < w.warm[oldest].at {
			oldest = i
		}
	}
	w.warm[oldest] = warm{id: id, at: w.now}
}

// serveWarm serves the queues that are warm, without asking epoll, and reports whether any had packets.
func (w *worker) serveWarm() (any bool) {
	now := w.engine.now()
	w.epoch.Add(1)
	for i := range w.warm {
		if q := w.warm[i]; w.now-q.at < int64(sparse) && w.serve(q.id, false, now) {
			any = true
		}
	}
	w.epoch.Add(1)
	return any
}

// linger is called after what was ready has been served.
func (w *worker) linger() {
	if w.small {
		w.small = false
		pause := unix.NsecToTimespec(int64(moderation))
		_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0,
			uintptr(unsafe.Pointer(&pause)), 0, 0, 0)
		return
	}
	if w.poll.blocked > sparse {
		return
	}
	began := w.now
	for idle, rounds := 0, 0; idle < lingerReads && rounds < 4*lingerReads; idle, rounds = idle+1, rounds+1 {
		if w.engine.pausedNow.Load() || w.engine.load.bulk(w.now) || w.now-began > int64(lingerMost) {
			return
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if w.serveWarm() {
			idle = 0
		}
	}
}
