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
	// Port is the UDP port of every node's tunnel, ours included; none in format ipip.
	Port uint16
	// Workers is how many goroutines move packets; 0 means DefaultWorkers of GOMAXPROCS.
	Workers int
	// Logger gets the events of ports, never of packets. Nil discards them.
	Logger *slog.Logger
	// PortLost, if not nil, is called once for a port that died by itself (its device
	// was deleted). The port is still attached; call Detach. It must not block.
	PortLost func(PortID, error)
	// Clock, if not nil, is the time in Unix nanoseconds, for an engine in a simulation. Workers call it.
	Clock func() int64
	// Ring, if not nil, gives each worker its ring, in place of NewRing: for one engine after the other in a
	// simulation. The ring is the engine's until Run has returned.
	Ring func() *port.Ring
	// Paused starts the engine in the state in which Pause leaves it, until Resume.
	Paused bool
}

// Engine moves packets between ports. Its methods are safe for concurrent use.
type Engine struct {
	cfg     Config
	log     *slog.Logger
	table   atomic.Pointer[Table]
	ports   atomic.Pointer[portSet]
	looks   atomic.Pointer[captures] // nil while nobody looks
	workers []*worker
	load    load

	runs runCheck

	pausing   pausing
	pausedNow atomic.Bool // pausing.paused, for who must not wait

	// overflowed is the sum of what ports that are gone had counted, so that the counter does not go
	// back at every change of the underlay.
	overflowed atomic.Uint64

	saying saying // what is logged off the workers

	flows *natflow.Table

	began time.Time // when the engine was made, with its monotonic reading

	mu        sync.Mutex // serializes changes of table and ports; workers do not take it
	attached  map[PortID]*attached
	nextID    PortID
	nextQueue queueID
	closed    atomic.Bool // changed with mu held; Run does not wait for it
}

// attached is a port in use.
type attached struct {
	id             PortID
	port           port.Port
	role           Role
	addrs          []netip.Addr // a pod's addresses
	queues         []*queue
	lost           atomic.Bool
	outer6         bool                    // an underlay over IPv6
	lanes, readers int                     // of a port.Spread, else 1
	local          netip.AddrPort          // of an underlay
	lane           func(lane uint8) uint16 // the source port of a lane; nil where there are none
	super          port.Super              // the port, if it takes superpackets as they are
	runs           *port.OffloadSwitch     // of an underlay that sends runs of datagrams in one call, else nil
	fair           fairPort                // of an underlay; Engine.mu guards it
	pod            *pod                    // of a pod's port, else nil
}

// queueID names a queue of an attached port to epoll; it is never reused.
type queueID uint64

// queue is a queue of a port in use.
type queue struct {
	id     queueID
	queue  port.Queue
	of     *attached
	worker *worker         // reads from it
	errors *port.UDPSocket // of a port.FDQueue
}

// New returns an engine without ports and with an empty table. It starts nothing. Run frees the engine's
// descriptors; to discard an engine, call Run with a context that has ended.
func New(cfg Config) (*Engine, error) {
	if cfg.Format.Overhead(false) == 0 {
		return nil, fmt.Errorf("wire format %v: not one this data plane speaks", cfg.Format)
	}
	if cfg.Port == 0 && cfg.Format != encap.FormatIPIP {
		return nil, errors.New("tunnel port 0: a tunnel needs the port that its peers send to")
	}
	if cfg.Workers == 0 {
		cfg.Workers = DefaultWorkers(runtime.GOMAXPROCS(0))
	}
	e := &Engine{cfg: cfg, log: cfg.Logger, began: time.Now(), flows: natflow.New(),
		attached: map[PortID]*attached{}}
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

// Swap publishes t. Batches in flight finish with the table they began with. The counters and path MTUs of
// peers go on if t was made by [Table.Next] of the table before.
func (e *Engine) Swap(t *Table) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.Store(t)
}

// Attach takes p into use, before or while Run runs. addrs are the addresses of
// a pod's port: the sources it may use, and the destinations it is handed. There
// is one host port and one underlay per outer family. On error p is not closed.
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
	a := &attached{port: p, role: role, addrs: slices.Clone(addrs)}
	if role == RoleUnderlay {
		u, ok := p.(port.Underlay)
		if !ok {
			return 0, fmt.Errorf("attach %T as underlay: it carries no datagrams", p)
		}
		a.local = netip.AddrPortFrom(u.LocalAddr().Addr().Unmap(), u.LocalAddr().Port())
		a.outer6 = a.local.Addr().Is6()
		e.runs.doubt(e.now())
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

// queue gives each queue of a to a worker.
func (e *Engine) queue(a *attached) {
	load := make([]int, len(e.workers))
	for i, w := range e.workers {
		load[i] = w.queues
	}
	for _, q := range a.port.Queues() {
		e.nextQueue++
		w := e.leastLoaded(a.role, load)
		f, ok := q.(port.FDQueue)
		if ok && f.Home != port.AnyWorker {
			w = e.workers[f.Home%len(e.workers)]
		}
		a.queues = append(a.queues, &queue{id: e.nextQueue, queue: q, of: a, worker: w, errors: f.Errors})
		load[w.index]++
	}
}

// unpoll takes the port's queues from epoll.
func (a *attached) unpoll() {
	for _, q := range a.queues {
		q.worker.poll.remove(q.queue.PollFD())
	}
}

// leastLoaded chooses the worker that reads a new queue. With two workers each direction has its own, however
// many queues it has. Otherwise it is who has the fewest; load is how many queues each has.
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

// Detach takes a port out of use and closes it. When it returns no worker touches
// the port any more.
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

// Port is the port with that id; nil if there is none. It is the engine's, which may close it.
func (e *Engine) Port(id PortID) port.Port {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.attached[id]; a != nil {
		return a.port
	}
	return nil
}

// retire takes a out of use. When it returns no worker touches the port any more.
func (e *Engine) retire(a *attached) {
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

// Run moves packets until ctx ends, then closes every port. It returns the first
// error that stopped a worker, or nil. Once it has returned, calling it again does nothing.
func (e *Engine) Run(ctx context.Context) error {
	if e.closed.Load() { // its descriptors' numbers are others' by now
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		e.pausing.close()
		for _, w := range e.workers {
			w.poll.ring() // wakes the worker, which then ends
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
	wg.Go(func() { e.keepFair(ctx) })
	wg.Wait()
	if !stop() {
		// a worker that failed did not wait to be woken, and its eventfd must not be written once it is closed
		<-woken
	}
	err := e.close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded) {
		return errors.Join(cause, err)
	}
	return err
}

// close ends the engine after its workers have.
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

// Stats reads the counters. They are of one moment only roughly: workers go on.
func (e *Engine) Stats() Stats {
	e.mu.Lock() // a port that goes is asked until it is closed, and counted once
	defer e.mu.Unlock()
	var s Stats
	for _, w := range e.workers {
		w.totals.addTo(&s)
	}
	s.Ports = len(e.attached)
	s.SocketOverflow = e.overflowed.Load()
	for _, a := range e.attached {
		s.SocketOverflow += a.overflow()
		s.HeldBack += len(a.fair.Held)
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

// addOffload adds what one port says of an offload to what others said. The state
// is the worst of any.
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

// overflow is what the kernel dropped in front of the port.
func (a *attached) overflow() uint64 {
	if o, ok := a.port.(interface{ Overflow() uint64 }); ok {
		return o.Overflow()
	}
	return 0
}

// now is the time in Unix nanoseconds on a clock that nobody sets: the system's
// when the engine was made, and what has passed since.
func (e *Engine) now() int64 { return e.at(time.Now()) }

// at is now, when the system's clock was read before.
func (e *Engine) at(t time.Time) int64 {
	if e.cfg.Clock != nil {
		return e.cfg.Clock()
	}
	return e.began.UnixNano() + int64(t.Sub(e.began))
}

// Peers reads the counters of every peer in the table.
func (e *Engine) Peers() []PeerStats { return e.table.Load().stats(e.now()) }

// Learn enters flows that an earlier engine of this node had by way of the host's rules, so that they
// continue. Call it before pods are attached, or while the engine is paused.
func (e *Engine) Learn(flows []natflow.Translated) { e.flows.Learn(flows, e.now()) }

// Strangers returns a few recent outer sources that belong to no peer.
func (e *Engine) Strangers() []Stranger {
	var l []Stranger
	for _, w := range e.workers {
		l = w.strangers.appendTo(l)
	}
	slices.SortFunc(l, func(a, b Stranger) int { return b.LastRx.Compare(a.LastRx) })
	return l
}

// Forgers returns a few recent inner sources that belong to another node, of packets that this host was asked
// to send.
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
