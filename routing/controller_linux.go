package routing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/routing/underlay"
	"weft/tunnel"
)

// controller keeps the kernel, and for types that need it a data plane, as its type of backend wants them for the
// latest set. It is every Backend, and safe for concurrent use.
type controller struct {
	cfg     BackendConfig
	log     *slog.Logger
	k       *kernel.Kernel
	out     *kernel.Kernel // the underlay's namespace: k, unless BackendConfig.Outside is another one
	kind    backendType
	plane   *plane.Plane     // nil if the kernel moves the packets
	actor   actor            // nil if all that the type does is the kernel's state
	rules   *hostrules.Rules // nil if the host's rules are nobody's business here
	monitor *kernel.Monitor
	outside *kernel.Monitor              // of the underlay\'s link; nil unless it is in another namespace
	kick    chan struct{}                // holds one: something may have changed
	dirty   atomic.Uint32                // what: a change
	pods    atomic.Pointer[[]netip.Addr] // of the data plane's ports; nil until it is known
	grace   time.Duration                // underlayGrace, but in tests
	release string                       // the kernel's, but in tests

	mu       sync.Mutex // serializes reconciling, and guards what follows and the plane
	set      lease.Set
	under    underlay.State
	features features
	hops     map[netip.Addr]kernel.Hop // to the peers; nil for a type that does not ask for them
	want     decision
	inPlace  kernel.State   // what was in place last: a change without another want is a repair
	sealed   bool           // the rules of a seal were in place once
	settled  bool           // all was in place once, so that what flannel left is taken over
	made     map[string]int // the numbers of the devices that we made, by name
	absent   []string       // the devices that a preparer could not make
	warned   map[string]bool
	strict   kernel.StrictDrops
	shadow   shadowWatch
	bridged  []kernel.Bridged // the bridges that have addresses of directly attached pods
	proxied  map[int]bool     // the numbers of those on which the host may answer for such pods
	ended    bool
	halted   bool        // Transferable.Pause
	over     func() bool // Run is to end; nil before it began

	statusMu sync.Mutex // a leaf lock, so that Status never waits for the kernel
	status   Status
}

// actor is the part of a type that is not the kernel's state.
type actor interface {
	// act does the actor's part for the situation; what fails is tried again. It is called with the controller's
	// lock held.
	act(ctx context.Context, s situation) outcome
	// stop is called once when the backend has run and ends.
	stop(ctx context.Context) error
}

// waker is an actor whose turn may come before the next reconcile does.
type waker interface {
	// next is when act is to be called again; the zero time for whenever. It is called with the controller's lock held.
	next() time.Time
}

// preparer is an actor that makes devices.
type preparer interface {
	// prepare makes the devices that d wants, with an MTU in bytes. absent are those that could not be made, and notes what works less
	// well than it could. It comes before the kernel's state, is called with the controller's lock held, and tried again if it fails.
	prepare(d *desired, mtu int) (absent, notes []string, err error)
	// close frees what prepare opened, also of a backend that never ran.
	close() error
}

// outcome is the result of an actor's work.
type outcome struct {
	// node says what is wrong for the node itself; if it wraps errNotStarted, no pod can be given an address.
	node error
	// peers has the records for which something failed, or with the zero Subnets what failed for none in particular. They do not make the
	// node unready.
	peers []peerFault
}

// errNotStarted says of an actor that what the node itself needs is not there.
var errNotStarted = errors.New("the node's own part is not in place")

// peerFault is what went wrong for the record with those subnets, or for one of them.
type peerFault struct {
	subnets lease.Subnets
	subnet  netip.Prefix // the zero Prefix for both
	err     error
}

var _ Backend = (*controller)(nil)

// newController makes the backend of a type whose packets the kernel moves: it opens descriptors, touches nothing
// and starts nothing. The caller runs Run or calls Close.
func newController(c BackendConfig, t backendType, a actor) (*controller, error) {
	about := t.trait()
	sizes, err := t.sizes(c.Underlay)
	if err != nil {
		return nil, fmt.Errorf("%s backend over %s: %w", about.name, c.Underlay.Name, err)
	}
	b := &controller{
		cfg: c, log: c.Logger.With("backend", about.name), k: c.Kernel, out: c.underlayKernel(), kind: t, actor: a,
		kick: make(chan struct{}, 1), grace: underlayGrace, release: c.Kernel.Release(), warned: map[string]bool{}, made: map[string]int{},
	}
	b.under.Now = c.Underlay
	b.status = Status{Type: about.name, MTU: sizes.inner, Path: about.path, Underlay: c.Underlay}
	if err := b.makeRules(); err != nil {
		return nil, fmt.Errorf("%s backend: %w", about.name, err)
	}
	if b.monitor, err = b.k.Subscribe(); err != nil {
		return nil, fmt.Errorf("%s backend: %w", about.name, err)
	}
	if b.away() {
		if b.outside, err = b.out.Subscribe(); err != nil {
			b.monitor.Close()
			return nil, fmt.Errorf("%s backend: %w", about.name, err)
		}
	}
	return b, nil
}

// openKernel makes the backend of a type whose packets the kernel moves.
func openKernel(c BackendConfig, t backendType, a actor) (Backend, error) {
	b, err := newController(c, t, a)
	if err != nil {
		return nil, err // and no *controller in the interface
	}
	return b, nil
}

// openCarried makes the backend of a type whose packets the data plane moves.
func openCarried(c BackendConfig, t carried) (Backend, error) {
	b, err := newCarrier(c, t)
	if err != nil {
		return nil, err // and no *carrier in the interface
	}
	return b, nil
}

// carrier is the backend of a type whose packets weft's own data plane moves.
type carrier struct {
	*controller
	recv tunnel.Recv
}

// newCarrier does for such a type what newController does for the others.
func newCarrier(c BackendConfig, t carried) (*carrier, error) {
	b, err := newController(c, t, nil)
	if err != nil {
		c.disinherit()
		return nil, err
	}
	o := t.plane()
	o.Inherited, o.Away, o.Keep = c.Inherited, c.Away, c.Keep
	o.Workers, o.Logger, o.Nudge, o.PortLost = c.Workers, b.log, b.nudge, c.PortLost
	o.Forwarding, o.StateDir = cmp.Or(c.Forwarding, o.Forwarding), c.StateDir
	if o.Outside = c.Outside; c.Unprivileged {
		err = unprivileged(&o)
	}
	b.status.Path = o.Path.String()
	if err == nil {
		err = o.Obstacle(b.out, c.Underlay.Name, c.Underlay.Local())
	}
	if err == nil {
		b.plane, err = plane.New(b.k, o)
	}
	if err != nil {
		c.disinherit()
		b.closeMonitors()
		return nil, fmt.Errorf("%s backend: %w", b.Type(), err)
	}
	if b.features.monitor, err = b.out.SubscribeFeatures(); err != nil {
		b.features.monitor = nil
		b.log.Info("changes of the underlay's features are noticed late", "cause", err)
	}
	b.protect() // it is the data plane now that receives
	return &carrier{b, t.recv()}, nil
}

// Engine is the data plane, for its counters.
func (c *carrier) Engine() *tunnel.Engine { return c.plane.Engine() }

// Recv returns the forms of datagrams, besides one whole packet in a datagram, that this node parses
// and its lease record names.
func (c *carrier) Recv() tunnel.Recv { return c.recv }

// DeviceDrops returns how many packets the kernel dropped because the TUN's queue was full or nobody
// had the TUN open. No counter of the data plane has these.
func (c *carrier) DeviceDrops() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.plane.Device() == "" {
		return 0, nil
	}
	d, err := c.k.Device(c.plane.Device())
	return d.Dropped, err
}

// Type implements Backend.
func (c *controller) Type() string { return c.kind.trait().name }

// RecordType implements Backend.
func (c *controller) RecordType() string { return c.kind.trait().record }

// Publish implements Backend.
func (c *controller) Publish() (data, v6data json.RawMessage) { return c.kind.publish() }

// MTU implements Backend.
func (c *controller) MTU() int { return c.Status().MTU }

// Status implements Backend.
func (c *controller) Status() Status {
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	st := c.status
	if c.rules != nil {
		st.Rules = c.rules.Status()
	}
	if w, ok := c.kind.(*wireGuard); ok {
		st.Encrypt = w.encrypt
	}
	if h, ok := c.actor.(interface{ hook() HookStatus }); ok {
		st.Hook = h.hook()
	}
	return st
}

// Apply implements Backend. The host's rules come first, so that no packet is ahead of them, unless those of an earlier
// run are there: then packets do not wait for iptables.
func (c *controller) Apply(ctx context.Context, s lease.Set) error {
	if c.rules == nil {
		return c.apply(ctx, s)
	}
	c.mu.Lock()
	c.seal() // at first before it is known who may do without
	c.mu.Unlock()
	present := false
	// What Do itself reports is that the namespace cannot be entered, and then apply says so too.
	_ = c.k.Do(func() error { present = c.rules.Present(); return nil })
	rules := func() { _ = c.k.Do(func() error { return c.rules.Apply(ctx, s) }) } // it has logged and published what is wrong
	if !present {
		rules()
		err := c.apply(ctx, s)
		if _, ok := c.kind.(sealer); ok {
			rules()
		}
		return err
	}
	err := c.apply(ctx, s)
	rules()
	return err
}

// apply is Apply for the kernel's objects and the data plane.
func (c *controller) apply(ctx context.Context, s lease.Set) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return fmt.Errorf("%s backend: it has ended", c.Type())
	}
	c.set = s
	c.want.stale = true // the peers may be others
	if c.halted {
		return nil
	}
	err := c.reconcile(ctx, kernel.ChangedNeighbours)
	if err != nil {
		c.nudge(kernel.ChangedAll) // Run retries
	}
	return err
}

// Run implements Backend.
func (c *controller) Run(ctx context.Context) error {
	started := ctx.Err() == nil
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, c.closeMonitors)
	defer stop()
	var wg sync.WaitGroup
	var monitored, watched, carried, ruled error
	c.mu.Lock()
	c.over = func() bool { return ctx.Err() != nil }
	c.mu.Unlock()
	wg.Go(func() { defer cancel(); monitored = c.monitor.Follow(c.nudge) })
	if c.outside != nil {
		wg.Go(func() { defer cancel(); watched = c.outside.Follow(c.nudge) })
	}
	if c.plane != nil {
		wg.Go(func() { defer cancel(); carried = c.plane.Run(ctx) })
		defer time.AfterFunc(beginAnyway, c.beginAnyway).Stop()
	}
	if m := c.features.monitor; m != nil {
		defer context.AfterFunc(ctx, m.Close)()
		wg.Go(c.followFeatures)
	}
	if c.rules != nil && started {
		wg.Go(func() { defer cancel(); ruled = c.k.Do(func() error { return c.rules.Run(ctx) }) })
	}
	c.repair(ctx)
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true // from here on the Kernel may be closed
	if c.actor != nil && started {
		// Detached: the context that would bound it has just ended.
		if err := c.actor.stop(context.WithoutCancel(ctx)); err != nil {
			c.log.Warn("stop", "error", err)
		}
	}
	if p, ok := c.actor.(preparer); ok {
		carried = errors.Join(carried, p.close())
	}
	if c.plane != nil {
		carried = errors.Join(carried, c.plane.Close())
	}
	return kernel.Wrap(c.Type()+" backend", errors.Join(carried, monitored, watched, ruled))
}

// Close implements Backend.
func (c *controller) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return c.Run(ctx)
}

// tendForwarding looks after how datagrams arrive, and shows it.
func (c *controller) tendForwarding() {
	if c.plane == nil {
		return
	}
	says := c.plane.TendForwarding(c.under.Now.Name)
	c.statusMu.Lock()
	c.status.Forwarding = says
	c.statusMu.Unlock()
}

// askAgain is when peers that do not answer are to be asked for once more; nil for never.
func (c *controller) askAgain() <-chan time.Time {
	if c.plane == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plane.Again()
}

// nudge asks Run to reconcile what may have changed. It does not block.
func (c *controller) nudge(ch kernel.Change) {
	c.dirty.Or(uint32(ch))
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// networks are those of the config, then the former ones.
func (c *controller) networks() []netip.Prefix {
	return slices.Concat(c.cfg.Network.Networks(), c.cfg.Former)
}

// outer are the peers' addresses.
func (c *controller) outer() []netip.Addr {
	as := make([]netip.Addr, 0, len(c.set.Peers))
	for i := range c.set.Peers {
		for _, a := range [...]netip.Addr{c.set.Peers[i].PublicIP, c.set.Peers[i].PublicIPv6} {
			if a.IsValid() {
				as = append(as, a)
			}
		}
	}
	return as
}

// logger names the TUN, if there is one.
func (c *controller) logger() *slog.Logger {
	if c.plane == nil {
		return c.log
	}
	return c.log.With("device", c.plane.Device())
}

// warnOnce logs a fault that does not matter enough to fail, the first time, with more attributes.
func (c *controller) warnOnce(err error, more ...any) {
	if err != nil && !c.warned[err.Error()] {
		c.warned[err.Error()] = true
		c.log.Warn("not set", append([]any{"error", err}, more...)...)
	}
}
