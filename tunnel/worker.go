package tunnel

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync/atomic"

	"weft/tunnel/port"
)

// worker moves packets: it waits until a port is readable, reads a batch into
// its ring, decides about every packet, writes them, and waits again. Only its
// own goroutine touches ring, out, tally, bucket and saying.
type worker struct {
	engine *Engine
	index  int
	poll   *poller
	ring   *port.Ring
	out    []*port.Packet // packets to be written, in order
	sends  []send         // of the packets in out
	one    [1]*port.Packet
	queues int // how many it reads; Engine.mu guards it
	tally  tally
	bucket bucket
	saying saying
	// answers bounds the probes that are answered, and away the ICMP errors that leave for peers.
	answers, away bucket
	decider

	totals    counters
	strangers strangers
	forgers   strangers // inner sources of other nodes that packets of this host had
	// forgedSaid is when a line told of one, Unix nanoseconds, and forgedLeft how many packets came since.
	forgedSaid int64
	forgedLeft uint64
	asked      netip.Addr // the peer to which the worker last sent a round of runCheck, until it looks again
	deafSaid   int64      // when a line told of errors that are not read, Unix nanoseconds
	// epoch is odd while the worker may hold pointers to ports (quiesce).
	epoch atomic.Uint64
	// learn is onSendError, bound once so that handing it to a port does not allocate.
	learn func(port.SendError)
	small bool    // the last batch was of many small packets
	warm  [4]warm // queues that had packets lately
}

// send is where a packet goes, and whose it is: the node's that receives it, or, on the way in, that sent it;
// nil if nobody knows.
type send struct {
	to   *attached
	peer *Peer
}

// batch is what a worker holds on to from the first packet of a batch to the last.
type batch struct {
	from  *attached // the port it was read from
	table *Table
	set   *portSet
	flow  *Flow     // the direction's counters
	now   int64     // Unix nanoseconds
	look  *captures // who looks on; nil for nobody

	// sender and route are what was found for the packet before. Packets come in bursts of a flow, and
	// within a batch the table stays the same.
	sender sender
	route  route
	source source // egress
	dest   dest   // egress

	heard *Peer // of whom nothing had arrived before in this second; nil for nobody

	straight straight // of a flow, and so found to answer none that the host's rules have changed
}

// sender is an outer source and whose it is; the zero sender is none.
type sender struct {
	addr netip.Addr
	peer *Peer
}

// route is where packets of a peer between two inner addresses go, once they have
// been admitted; the zero route is none.
type route struct {
	peer     *Peer
	src, dst netip.Addr
	to       *attached
}

func newWorker(e *Engine, index int) (*worker, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	ring := e.cfg.Ring
	if ring == nil {
		ring = port.NewRing
	}
	w := &worker{engine: e, index: index, poll: p, ring: ring(),
		decider: decider{flows: e.flows, port: e.cfg.Port}}
	w.ring.Worker = index
	w.out = make([]*port.Packet, 0, 2*port.BatchSize+port.MaxRun)
	w.sends = make([]send, 0, cap(w.out))
	w.learn = w.onSendError
	return w, nil
}

// run works until the engine ends. It rests while the engine is paused.
func (w *worker) run() error {
	keep := runtime.GOMAXPROCS(0) > len(w.engine.workers)
	if !w.engine.pausing.rest() {
		return nil
	}
	for {
		events, rung, err := w.poll.wait(keep)
		if err != nil {
			return err
		}
		if rung {
			if !w.engine.pausing.rest() {
				return nil
			}
			w.recheckRuns()
			continue
		}
		w.totals.wakeups.Add(1)
		w.totals.busy.Add(int64(w.poll.worked))
		served, now := false, w.engine.at(w.poll.woke)
		w.epoch.Add(1)
		for i := range events {
			if w.serve(queueID(events[i].id), events[i].failed, now) {
				served = true
			}
		}
		w.epoch.Add(1)
		if served && keep {
			w.linger()
		}
		w.batch = batch{} // an idle worker must not keep a table that was replaced long ago
	}
}

// serve moves one batch from one queue of a port at now, and reports whether there was one.
func (w *worker) serve(id queueID, failed bool, now int64) bool {
	set := w.engine.ports.Load()
	q := set.queue(id)
	if q == nil || q.of.lost.Load() {
		return false // detached since epoll reported it
	}
	a := q.of
	w.batch = batch{from: a, table: w.engine.table.Load(), set: set, flow: &w.tally.egress, now: now,
		look: w.engine.looks.Load()}
	if failed && q.errors != nil && q.errors.ReadErrors(w.now, w.learn) {
		w.deaf()
	}
	w.ring.Reset(w.now)
	if err := q.queue.ReadBatch(w.ring); err != nil {
		w.lose(a, err)
	}
	packets, reads, bytes := w.ring.Filled()
	if packets == 0 {
		return false
	}
	w.warmed(id)
	w.observe(packets, reads, bytes)
	if a.role == RoleUnderlay {
		w.flow = &w.tally.ingress
		w.ingress()
		if w.heard != nil {
			w.checkRuns(w.heard)
		}
	} else {
		w.egress()
		if a.pod != nil {
			a.pod.sent(&w.tally.egress, w.now)
		}
	}
	w.tally.reads, w.tally.writes = uint64(reads), uint64(w.ring.Writes)
	w.totals.add(&w.tally)
	return true
}

// lose gives up a port that died by itself, so that epoll does not report it
// for ever, and tells the owner.
func (w *worker) lose(a *attached, err error) {
	if a.lost.Swap(true) {
		return
	}
	a.unpoll()
	level := slog.LevelWarn
	if a.role == RolePod {
		level = slog.LevelInfo // a pod that ends takes its interface along
	}
	w.engine.log.Log(context.Background(), level, "port lost", "role", a.role.String(), "port", uint64(a.id),
		"err", err)
	if f := w.engine.cfg.PortLost; f != nil {
		f(a.id, err)
	}
}

// quiesce returns when the worker no longer holds a pointer to a port that was
// removed from the port set before the call.
func (w *worker) quiesce() {
	e := w.epoch.Load()
	if e%2 == 0 {
		return
	}
	for w.epoch.Load() == e {
		runtime.Gosched()
	}
}
