package tunnel

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync/atomic"

	"weft/tunnel/port"
)

// worker waits until a port is readable, reads a batch into its ring, decides about every packet, writes
// them, and waits again. Only its own goroutine touches its fields, except those that are noted and the
// atomic ones.
type worker struct {
	engine    *Engine
	index     int
	poll      *poller
	ring      *port.Ring
	out       []*port.Packet // packets to write at the end of the batch, in order
	sends     []send         // the destinations of the packets in out
	one       [1]*port.Packet
	queues    int // number of queues that the worker reads; guarded by Engine.mu
	tally     tally
	icmpLimit rateLimit
	logLimit  logLimiter
	// probeLimit bounds the probes that are answered, and peerICMPLimit the ICMP errors that are sent to peers.
	probeLimit, peerICMPLimit rateLimit
	decider

	totals    counters
	strangers strangers
	forgers   strangers // inner sources of egress packets that belong to other nodes
	// forgedLogged is when a forged source was last logged, in Unix nanoseconds. forgedSkipped counts packets
	// since.
	forgedLogged  int64
	forgedSkipped uint64
	probedPeer    netip.Addr // peer that the worker last sent a round of runCheck to, until recheckRuns
	mutedLogged   int64      // when muted errors were last logged, Unix nanoseconds
	// epoch is odd while the worker may hold pointers to ports; see quiesce.
	epoch atomic.Uint64
	// sendErrorFunc is onSendError, bound once so that passing it to a port does not allocate.
	sendErrorFunc func(port.SendError)
	small         bool           // the last batch was of many small packets
	recent        [4]recentQueue // queues that had packets lately
}

// send is the destination of a packet. peer is the node that receives the packet or, on ingress, the node
// that sent it; nil if unknown.
type send struct {
	to   *attachedPort
	peer *Peer
}

// batch is the state that a worker keeps while it handles one batch.
type batch struct {
	from     *attachedPort // the port that the batch was read from
	table    *Table
	set      *portSet
	flow     *Flow       // counters of the batch's direction
	now      int64       // Unix nanoseconds
	captures *captureSet // nil if no capture runs

	// sender and route cache the lookups of the previous packet: packets come in bursts of a flow, and the table
	// does not change within a batch.
	sender sender
	route  route
	source source // egress
	dest   dest   // egress

	heard *Peer // the last peer with its first packet of this second; nil if none

	lastDirect directFlow // a flow that was found to need no translation by the host
}

// sender is an outer source and its peer. The zero sender matches nothing.
type sender struct {
	addr netip.Addr
	peer *Peer
}

// route is the port for admitted packets of a peer between two inner addresses. The zero route matches
// nothing.
type route struct {
	peer     *Peer
	src, dst netip.Addr
	to       *attachedPort
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
	w.sendErrorFunc = w.onSendError
	return w, nil
}

// run moves packets until the engine ends. It blocks while the engine is paused.
func (w *worker) run() error {
	keep := runtime.GOMAXPROCS(0) > len(w.engine.workers)
	if !w.engine.pausing.rest() {
		return nil
	}
	for {
		events, woken, err := w.poll.wait(keep)
		if err != nil {
			return err
		}
		if woken {
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
		w.batch = batch{} // an idle worker must not keep a replaced table alive
	}
}

// serve moves one batch from a queue, and reports whether there was one.
func (w *worker) serve(id queueID, failed bool, now int64) bool {
	set := w.engine.ports.Load()
	q := set.queue(id)
	if q == nil || q.port.lost.Load() {
		return false // detached since epoll reported it
	}
	a := q.port
	w.batch = batch{from: a, table: w.engine.table.Load(), set: set, flow: &w.tally.egress, now: now,
		captures: w.engine.captures.Load()}
	if failed && q.errors != nil && q.errors.ReadErrors(w.now, w.sendErrorFunc) {
		w.logMuted()
	}
	w.ring.Reset(w.now)
	if err := q.queue.ReadBatch(w.ring); err != nil {
		w.portLost(a, err)
	}
	packets, reads, bytes := w.ring.Filled()
	if packets == 0 {
		return false
	}
	w.noteRecent(id)
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
			a.pod.countSent(&w.tally.egress, w.now)
		}
	}
	w.tally.reads, w.tally.writes = uint64(reads), uint64(w.ring.Writes)
	w.totals.add(&w.tally)
	return true
}

// portLost takes a port that failed by itself out of epoll, which would report it forever, and tells the
// owner.
func (w *worker) portLost(a *attachedPort, err error) {
	if a.lost.Swap(true) {
		return
	}
	a.unpoll()
	level := slog.LevelWarn
	if a.role == RolePod {
		level = slog.LevelInfo // a pod's interface ends with the pod
	}
	w.engine.log.Log(context.Background(), level, "port lost", "role", a.role.String(), "port", uint64(a.id),
		"err", err)
	if f := w.engine.cfg.PortLost; f != nil {
		f(a.id, err)
	}
}

// quiesce returns once the worker holds no pointer to a port that was removed from the port set before the
// call.
func (w *worker) quiesce() {
	e := w.epoch.Load()
	if e%2 == 0 {
		return
	}
	for w.epoch.Load() == e {
		runtime.Gosched()
	}
}
