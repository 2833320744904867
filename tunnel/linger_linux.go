package tunnel

import (
	"sync/atomic"
	"time"
	"unsafe"

	"weft/tunnel/port"

	"golang.org/x/sys/unix"
)

// What a worker does after a batch, before it blocks. Blocking and waking cost some microseconds each, more
// than any packet. With sparse traffic a reply is usually near, so the worker polls its recent queues a
// while, and yields in between. With many small packets it sleeps briefly instead, because later batches are
// longer and need fewer wakeups per packet.
const (
	// lingerReads is how many idle polls a worker makes. It yields the CPU before each.
	lingerReads = 80
	// lingerMost bounds the polling even if packets keep coming, because only the next wait reports other queues
	// and the end of the engine. A link that is stuck may add turnPatience.
	lingerMost = 5 * time.Millisecond
	// sparse is the longest gap between packets for which a worker polls.
	sparse = time.Millisecond
	// bulkLasts is how long traffic counts as bulk after a bulk batch. In bulk traffic no one waits for a single
	// packet, and yielding only costs time.
	bulkLasts = time.Millisecond
	// A batch of at least bulkPackets packets or bulkBytes bytes is bulk.
	bulkPackets = 8
	bulkBytes   = 8 << 10
	// After a batch of more than fewSmall packets of less than smallPacket bytes each, the worker sleeps for
	// moderation. The kernel adds the timer slack, 50 µs by default.
	fewSmall    = 4
	smallPacket = 512
	moderation  = 50 * time.Microsecond
)

// load is shared by the workers of an engine.
type load struct{ bulkAt atomic.Int64 } // engine time of the last bulk batch, approximately

// bulk reports whether there was a bulk batch within bulkLasts.
func (l *load) bulk(now int64) bool { return now-l.bulkAt.Load() < int64(bulkLasts) }

// observe classifies a batch of n packets that was read.
func (w *worker) observe(n, reads, bytes int) {
	w.small = n > fewSmall && bytes < n*(port.Headroom+smallPacket) && n < port.BatchSize &&
		reads < port.MaxReads
	if n < bulkPackets && bytes < bulkBytes {
		return
	}
	if l := &w.engine.load; w.now-l.bulkAt.Load() > int64(bulkLasts/4) { // others read it: write seldom
		l.bulkAt.Store(w.now)
	}
}

// recentQueue is a queue that had packets lately.
type recentQueue struct {
	id queueID
	at int64 // engine time of its last batch
}

// noteRecent records that a queue had packets. It replaces the queue that has been idle longest.
func (w *worker) noteRecent(id queueID) {
	oldest := 0
	for i := range w.recent {
		if w.recent[i].id == id {
			oldest = i
			break
		}
		if w.recent[i].at < w.recent[oldest].at {
			oldest = i
		}
	}
	w.recent[oldest] = recentQueue{id: id, at: w.now}
}

// serveRecent serves the recent queues without epoll, and reports whether any had packets.
func (w *worker) serveRecent() (any bool) {
	now := w.engine.now()
	w.epoch.Add(1)
	for i := range w.recent {
		if q := w.recent[i]; w.now-q.at < int64(sparse) && w.serve(q.id, false, now) {
			any = true
		}
	}
	w.epoch.Add(1)
	return any
}

// linger polls the recent queues, or sleeps briefly. It is called after all ready queues were served.
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
		if w.serveRecent() {
			idle = 0
		}
	}
}
