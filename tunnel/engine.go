package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weft/encap"
	"weft/tunnel/natflow"
	"weft/tunnel/port"
)

// Config is the configuration of an Engine.
type Config struct {
	// Format is the wire format.
	Format encap.Format
	// Port is the UDP port of every node's tunnel, this node's included. Format ipip uses none.
	Port uint16
	// Workers is the number of workers. 0 means DefaultWorkers(GOMAXPROCS).
	Workers int
	// Logger gets the events of ports and peers. Nothing is logged per packet. Nil discards them.
	Logger *slog.Logger
	// PortLost, if not nil, is called once for a port that failed by itself, because its device was deleted. The
	// port stays attached until Detach. PortLost must not block.
	PortLost func(PortID, error)
	// Clock, if not nil, returns the time in Unix nanoseconds, for simulations. Workers call it concurrently.
	Clock func() int64
	// Ring, if not nil, supplies each worker's ring instead of port.NewRing, for simulations that run one engine
	// after another. The engine owns the ring until Run has returned.
	Ring func() *port.Ring
	// Paused makes the engine start paused, until Resume.
	Paused bool
}

// Engine moves packets between ports. Its methods are safe for concurrent use.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	table    atomic.Pointer[Table]
	ports    atomic.Pointer[portSet]
	captures atomic.Pointer[captureSet] // nil if no capture runs
	workers  []*worker
	load     load

	runs runCheck

	pausing   pausing
	pausedNow atomic.Bool // a copy of pausing.paused that is read without the lock

	// overflowed sums the overflow counts of ports that were closed, so that Stats.SocketOverflow never
	// decreases.
	overflowed atomic.Uint64

	logLimit logLimiter // of lines that no worker logs

	flows *natflow.Table

	began time.Time // when the engine was made; has a monotonic reading

	mu        sync.Mutex // serializes changes of table and ports; workers do not take it
	attached  map[PortID]*attachedPort
	nextID    PortID
	nextQueue queueID
	closed    atomic.Bool // changed with mu held; read without it
}

// attachedPort is a port in use.
type attachedPort struct {
	id             PortID
	port           port.Port
	role           Role
	addrs          []netip.Addr // a pod's addresses
	queues         []*queue
	lost           atomic.Bool
	outer6         bool                    // the underlay is IPv6
	lanes, readers int                     // of a port.Spread; 1 for any other port
	local          netip.AddrPort          // of an underlay: its address
	lane           func(lane uint8) uint16 // the source port of a lane; nil if the port has no lanes
	super          port.Super              // the port if it takes superpackets, else nil
	runs           *port.OffloadSwitch     // of an underlay that sends runs of datagrams in one call; else nil
	fair           fairPort                // of an underlay; guarded by Engine.mu
	pod            *pod                    // of a pod's port; else nil
}

// queueID identifies a queue of an attached port in epoll. IDs are never reused.
type queueID uint64

// queue is a queue of an attached port.
type queue struct {
	id     queueID
	queue  port.Queue
	port   *attachedPort
	worker *worker         // the worker that reads the queue
	errors *port.UDPSocket // of a port.FDQueue: the socket with the queue's error messages
}

// New returns an engine without ports and with an empty table. It starts nothing. Run frees the engine's
// descriptors, so call Run with a canceled context to discard an engine.
func New(cfg Config) (*Engine, error) {
	if cfg.Format.Overhead(false) == 0 {
		return nil, fmt.Errorf("wire format %v: not supported by this data plane", cfg.Format)
	}
	if cfg.Port == 0 && cfg.Format != encap.FormatIPIP {
		return nil, errors.New("tunnel port 0: this wire format needs a UDP port")
	}
	if cfg.Workers == 0 {
		cfg.Workers = DefaultWorkers(runtime.GOMAXPROCS(0))
	}
	e := &Engine{cfg: cfg, log: cfg.Logger, began: time.Now(), flows: natflow.New(),
		attached: map[PortID]*attachedPort{}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.pausing.changed.L = &e.pausing.mu
	e.pausing.paused = cfg.Paused
	e.pausedNow.Store(cfg.Paused)
	e.ports.Store(&portSet{})
	empty, _ := NewTable(cfg.Format, Spec{Check: CheckStrict})
	e.table.Store(empty)
	for i := range cfg.Workers {
		w, err := newWorker(e, i)
		if err != nil {
			for _, w := range e.workers {
				_ = w.poll.free()
			}
			return nil, err
		}
		e.workers = append(e.workers, w)
	}
	return e, nil
}

// Swap publishes t. Batches in flight finish with the previous table. The counters and path MTUs of peers
// continue if t was made by [Table.Next] of the previous table.
func (e *Engine) Swap(t *Table) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.Store(t)
}

// Attach takes p into use, before or while Run runs. addrs are the addresses of a pod's port: the sources
// that it may use, and the destinations that it receives. An engine has at most one host port, and one
// underlay per outer family. The engine owns p from then on, and closes it. On error p is not closed.
func (e *Engine) Attach(p port.Port, role Role, addrs ...netip.Addr) (PortID, error) {
	if role == RolePod {
		return e.AttachPod(p, PodOptions{Addrs: addrs})
	}
	return e.attach(p, role, addrs, 0)
}

func (e *Engine) attach(p port.Port, role Role, addrs []netip.Addr, mtu int) (PortID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return 0, errors.New("attach port: the data plane has ended")
	}
	a := &attachedPort{port: p, role: role, addrs: slices.Clone(addrs)}
	if role == RoleUnderlay {
		u, ok := p.(port.Underlay)
		if !ok {
			return 0, fmt.Errorf("attach %T as underlay: it is no port.Underlay", p)
		}
		a.local = netip.AddrPortFrom(u.LocalAddr().Addr().Unmap(), u.LocalAddr().Port())
		a.outer6 = a.local.Addr().Is6()
		e.runs.invalidate(e.now())
	}
	if role == RolePod {
		a.pod = new(pod)
		a.pod.mtu.Store(int64(mtu))
	}
	a.super, _ = p.(port.Super)
	a.lanes, a.readers = 1, 1
	if s, ok := p.(port.Spread); ok {
		a.lanes, a.readers, a.lane, a.runs = s.Lanes(), s.Readers(), s.LanePort, s.RunOffload()
	}
	e.queue(a)
	next, err := e.ports.Load().with(a)
	if err != nil {
		return 0, err
	}
	e.nextID++
	a.id = e.nextID
	e.attached[a.id] = a
	for _, q := range a.queues {
		q.worker.queues++
	}
	e.ports.Store(next) // before epoll can report it
	for _, q := range a.queues {
		if err := q.worker.poll.add(q.queue.PollFD(), q.id); err != nil {
			e.retire(a)
			return 0, fmt.Errorf("attach %v port: %w", role, err)
		}
	}
	return a.id, nil
}

// queue assigns each queue of a to a worker.
func (e *Engine) queue(a *attachedPort) {
	load := make([]int, len(e.workers))
	for i, w := range e.workers {
		load[i] = w.queues
	}
	for _, q := range a.port.Queues() {
		e.nextQueue++
		w := e.leastLoaded(a.role, load)
		f, ok := q.(port.FDQueue)
		if ok && f.Worker != port.AnyWorker {
			w = e.workers[f.Worker%len(e.workers)]
		}
		a.queues = append(a.queues, &queue{id: e.nextQueue, queue: q, port: a, worker: w, errors: f.Errors})
		load[w.index]++
	}
}

// unpoll removes the port's queues from epoll.
func (a *attachedPort) unpoll() {
	for _, q := range a.queues {
		q.worker.poll.remove(q.queue.PollFD())
	}
}

// leastLoaded returns the worker that reads a new queue. Two workers take one direction each, however many
// queues it has. Otherwise the worker with the fewest queues reads it; load has the number of queues by
// worker.
func (e *Engine) leastLoaded(role Role, load []int) *worker {
	if len(e.workers) == 2 {
		if role == RoleUnderlay {
			return e.workers[1]
		}
		return e.workers[0]
	}
	best := 0
	for i := range load {
		if load[i] < load[best] || role == RoleUnderlay && load[i] == load[best] {
			best = i
		}
	}
	return e.workers[best]
}

// Detach takes a port out of use and closes it. After Detach returns, no worker uses the port.
func (e *Engine) Detach(id PortID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.attached[id]
	if a == nil {
		return fmt.Errorf("detach port %d: there is no such port", id)
	}
	e.retire(a)
	e.overflowed.Add(a.overflow()) // no worker reads from it any more
	return a.port.Close()
}

// Port returns the port with that id, or nil. The engine still owns the port, and may close it.
func (e *Engine) Port(id PortID) port.Port {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.attached[id]; a != nil {
		return a.port
	}
	return nil
}

// retire takes a out of use. After it returns, no worker uses the port.
func (e *Engine) retire(a *attachedPort) {
	delete(e.attached, a.id)
	e.ports.Store(e.ports.Load().without(a))
	for _, q := range a.queues {
		q.worker.queues--
	}
	a.unpoll()
	for _, w := range e.workers {
		w.quiesce()
	}
}

// Run moves packets until ctx ends, and then closes every port. It returns the first error that stopped a
// worker. A second call returns nil at once.
func (e *Engine) Run(ctx context.Context) error {
	if e.closed.Load() { // the descriptors are closed, and their numbers may be in use for other files
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		e.pausing.close()
		for _, w := range e.workers {
			w.poll.wakeup()
		}
	})
	var wg sync.WaitGroup
	for _, w := range e.workers {
		e.pausing.begin()
		wg.Go(func() {
			defer e.pausing.end()
			if err := w.run(); err != nil {
				cancel(fmt.Errorf("worker %d: %w", w.index, err))
			}
		})
	}
	wg.Go(func() { e.fairLoop(ctx) })
	wg.Wait()
	if !stop() {
		// A worker that failed did not wait for the wakeup. Its eventfd must not be written to after it is closed.
		<-woken
	}
	err := e.close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded) {
		return errors.Join(cause, err)
	}
	return err
}

// close closes the ports and pollers. The workers have ended.
func (e *Engine) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed.Store(true)
	var errs []error
	for _, a := range e.attached {
		errs = append(errs, a.port.Close())
	}
	clear(e.attached)
	for _, w := range e.workers {
		errs = append(errs, w.poll.free())
	}
	e.ports.Store(&portSet{})
	return errors.Join(errs...)
}

// Stats reads the counters. Workers keep counting meanwhile, so the counters are not of one instant.
func (e *Engine) Stats() Stats {
	e.mu.Lock() // a port in Detach is counted exactly once
	defer e.mu.Unlock()
	var s Stats
	for _, w := range e.workers {
		w.totals.addTo(&s)
	}
	s.Ports = len(e.attached)
	s.SocketOverflow = e.overflowed.Load()
	for _, a := range e.attached {
		s.SocketOverflow += a.overflow()
		s.HeldBack += len(a.fair.Throttled)
		if o, ok := a.port.(port.Super); ok {
			for _, o := range o.Offloads() {
				s.addOffload(o)
			}
		}
		if o, ok := a.port.(interface{ Outlet() port.OutletStats }); ok {
			s.Outlets = append(s.Outlets, o.Outlet())
		}
	}
	slices.SortFunc(s.Offloads, func(a, b port.OffloadStats) int { return int(a.Offload) - int(b.Offload) })
	slices.SortFunc(s.Outlets, func(a, b port.OutletStats) int { return a.Local.Compare(b.Local) })
	return s
}

// addOffload adds one port's statistics of an offload to those of the other ports. The state is the worst of
// any.
func (s *Stats) addOffload(o port.OffloadStats) {
	for i := range s.Offloads {
		if have := &s.Offloads[i]; have.Offload == o.Offload {
			have.State = max(have.State, o.State)
			have.Calls += o.Calls
			have.Segments += o.Segments
			return
		}
	}
	s.Offloads = append(s.Offloads, o)
}

// overflow returns the number of datagrams that the kernel dropped in front of the port.
func (a *attachedPort) overflow() uint64 {
	if o, ok := a.port.(interface{ Overflow() uint64 }); ok {
		return o.Overflow()
	}
	return 0
}

// now returns the time in Unix nanoseconds: the system's when the engine was made, plus the monotonic time
// since. Nobody can set this clock.
func (e *Engine) now() int64 { return e.at(time.Now()) }

// at is now for a time that the caller has already read.
func (e *Engine) at(t time.Time) int64 {
	if e.cfg.Clock != nil {
		return e.cfg.Clock()
	}
	return e.began.UnixNano() + int64(t.Sub(e.began))
}

// Peers returns the counters of every peer in the table.
func (e *Engine) Peers() []PeerStats { return e.table.Load().stats(e.now()) }

// Learn enters flows that the host's NAT translated before this engine was made, so that they continue. Call
// it before pods are attached or while the engine is paused.
func (e *Engine) Learn(flows []natflow.Translated) { e.flows.Learn(flows, e.now()) }

// Strangers returns some recent outer sources that belong to no peer, the latest first.
func (e *Engine) Strangers() []Stranger {
	var l []Stranger
	for _, w := range e.workers {
		l = w.strangers.appendTo(l)
	}
	slices.SortFunc(l, func(a, b Stranger) int { return b.LastRx.Compare(a.LastRx) })
	return l
}

// Forgers returns some recent inner sources of egress packets that belong to another node, the latest first.
func (e *Engine) Forgers() []Stranger {
	var l []Stranger
	for _, w := range e.workers {
		l = w.forgers.appendTo(l)
	}
	slices.SortFunc(l, func(a, b Stranger) int { return b.LastRx.Compare(a.LastRx) })
	return l
}

func unixTime(sec int64) time.Time {
	if sec == 0 {
		return time.Time{}
	}
	return time.Unix(sec, 0)
}
