package routing

import (
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

	"weft/encap"
	"weft/lease"
	"weft/tunnel"
)

// UDPConfig is what a UDP backend is made of.
type UDPConfig struct {
	// Kernel is the namespace to work in. It is borrowed until Run or Close returns.
	Kernel *Kernel
	// Network is the network config, Options its Backend object (ParseUDPConfig).
	Network lease.NetworkConfig
	Options UDPOptions
	// Former are networks that this node was in before: the TUN that it had there is taken
	// up, and loses the address and the route of then.
	Former []netip.Prefix
	// Workers is how many workers the data plane has; 0 means tunnel.DefaultWorkers.
	Workers int
	// Underlay is what ChooseUnderlay chose with UnderlayOptions.
	Underlay        Underlay
	UnderlayOptions UnderlayOptions
	// UnderlayChanged, if not nil, is called with the new state when the underlay's
	// addresses or MTU changed, so that the lease record can follow. It must not block,
	// nor call Apply.
	UnderlayChanged func(Underlay)
	// Logger; nil discards.
	Logger *slog.Logger

	carried carried // nil: the udp backend itself
}

// UDP is the backend that carries packets in UDP through a TUN: bare, as flannel's udp does, or
// as vxlan where the kernel cannot. It is safe for concurrent use.
type UDP struct {
	cfg     UDPConfig
	log     *slog.Logger
	k       *Kernel
	plane   *plane
	monitor *monitor
	kick    chan struct{} // holds one: something may have changed
	dirty   atomic.Uint32 // what: a change
	grace   time.Duration // underlayGrace, but in tests

	mu     sync.Mutex // serializes reconciling, and guards what follows
	set    lease.Set
	device deviceState
	under  underState
	table  tableKey
	tenure tenure       // as of the table
	peers  carriedPeers // what the table was made from
	ways   map[netip.Addr]hop
	hops   hopState
	warned map[string]bool
	strict strictDrops
	ended  bool
	over   func() bool // Run is to end; nil before it began
	want   State       // what was in place last: a change without another want is a repair

	lostMu sync.Mutex // a leaf lock: the data plane's workers take it
	lost   map[tunnel.PortID]bool

	statusMu sync.Mutex // a leaf lock, so that Status never waits for the kernel
	status   Status
}

// deviceState is the TUN as it was opened.
type deviceState struct {
	name  string
	index int
}

// NewUDP prepares the backend: it opens descriptors, touches no device and starts nothing.
// The caller runs Run or calls Close.
func NewUDP(c UDPConfig) (*UDP, error) {
	if c.carried == nil {
		c.carried = bareIP{c.Options, c.Network.EnableIPv6}
	}
	name := c.carried.trait().name
	if c.Kernel == nil {
		return nil, fmt.Errorf("%s backend: UDPConfig.Kernel is missing", name)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	sizes, err := c.carried.sizes(c.Underlay)
	if err != nil {
		return nil, fmt.Errorf("%s backend over %s: %w", name, c.Underlay.Link, err)
	}
	u := &UDP{cfg: c, log: c.Logger.With("backend", name), k: c.Kernel,
		kick: make(chan struct{}, 1), grace: underlayGrace, lost: map[tunnel.PortID]bool{}}
	u.under.now = c.Underlay
	if err := u.rawIfAskedFor(); err != nil {
		return nil, err
	}
	u.status = Status{Type: name, MTU: sizes.inner, Path: c.Options.Path.String(), Underlay: c.Underlay}
	if u.monitor, err = u.k.subscribe(); err != nil {
		return nil, fmt.Errorf("%s backend: %w", name, err)
	}
	if u.plane, err = newPlane(u.k, c.Workers, c.carried.format(), c.Options, u.log, u.portLost); err != nil {
		u.monitor.Close()
		return nil, fmt.Errorf("%s backend: %w", name, err)
	}
	return u, nil
}

// Type implements Backend.
func (u *UDP) Type() string { return u.cfg.carried.trait().name }

// RecordType implements Backend.
func (u *UDP) RecordType() string { return u.cfg.carried.trait().record }

// Publish implements Backend.
func (u *UDP) Publish() (data, v6data json.RawMessage) { return u.cfg.carried.publish() }

// Recv is what the lease record names of what this node parses beyond one complete packet a
// datagram: in format vxlan nothing, since what kernels take is all that is sent.
func (u *UDP) Recv() tunnel.Recv {
	if u.cfg.carried.format() == encap.FormatIP {
		return tunnel.Supported
	}
	return 0
}

// MTU implements Backend.
func (u *UDP) MTU() int { return u.Status().MTU }

// Status implements Backend.
func (u *UDP) Status() Status {
	u.statusMu.Lock()
	defer u.statusMu.Unlock()
	return u.status
}

// Engine is the data plane, for its counters.
func (u *UDP) Engine() *tunnel.Engine { return u.plane.engine }

// DeviceDrops is how many packets the kernel dropped because the TUN's queue was full or nobody had
// it open: losses that no counter of the data plane sees.
func (u *UDP) DeviceDrops() (uint64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended || u.device.name == "" {
		return 0, nil
	}
	d, err := u.k.device(u.device.name)
	return d.Dropped, err
}

// Apply implements Backend.
func (u *UDP) Apply(_ context.Context, s lease.Set) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return fmt.Errorf("%s backend: it has ended", u.Type())
	}
	u.set = s
	u.table = tableKey{} // the peers may be others
	err := u.reconcile(changedNeighbours)
	if err != nil {
		u.nudge(changedAll) // Run retries
	}
	return err
}

// retryFirst and retryLast bound the wait after an attempt that failed; resync is
// how often all is compared without reason. tidy is the least time between two reconciles:
// a burst of notifications costs one, and a quarrel with another program ten a second.
const (
	retryFirst = 200 * time.Millisecond
	retryLast  = 30 * time.Second
	resync     = 30 * time.Second
	tidy       = 100 * time.Millisecond
)

// Run implements Backend.
func (u *UDP) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, u.monitor.Close)
	defer stop()
	var wg sync.WaitGroup
	var errs [2]error
	u.mu.Lock()
	u.over = func() bool { return ctx.Err() != nil }
	u.mu.Unlock()
	wg.Go(func() { defer cancel(); errs[0] = u.plane.run(ctx) })
	wg.Go(func() { defer cancel(); errs[1] = u.monitor.run(u.nudge) })
	u.repair(ctx)
	wg.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true // from here on the Kernel may be closed
	return wrap(u.Type()+" backend", errors.Join(errs[0], errs[1], u.plane.close()))
}

// repair reconciles after every notification and failure, and now and then, until
// ctx ends.
func (u *UDP) repair(ctx context.Context) {
	timer := time.NewTimer(resync)
	defer timer.Stop()
	retry := retryFirst
	for {
		var c change
		u.mu.Lock()
		again := u.hops.again()
		u.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-u.kick:
			c = change(u.dirty.Swap(0))
		case <-timer.C:
			c = changedAll
		case <-again:
			u.mu.Lock()
			u.refuse()
			u.mu.Unlock()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		u.mu.Lock()
		u.hops.took = 0
		full, err := c&changedObjects != 0, error(nil)
		if !full {
			full = u.followHops(c) != nil
			u.watch()
		}
		if full {
			err = u.reconcile(c)
		}
		pause := max(tidy, 10*u.hops.took) // with 10,000 peers, asking for routes is work
		u.mu.Unlock()
		wait := resync
		if err != nil {
			wait, retry = retry, min(2*retry, retryLast)
		} else if full {
			retry = retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if full { // else the wait for the next try goes on
			timer.Reset(wait)
		}
	}
}

// ownership is which objects are ours to change.
func (u *UDP) ownership() Ownership {
	return Ownership{Link: u.device.name, Networks: u.networks(), Sweep: true}
}

// networks are those of the config, then the former ones.
func (u *UDP) networks() []netip.Prefix {
	return slices.Concat(networks(u.cfg.Network), u.cfg.Former)
}

// nudge asks to look after what may have changed. It does not block.
func (u *UDP) nudge(c change) {
	u.dirty.Or(uint32(c))
	select {
	case u.kick <- struct{}{}:
	default:
	}
}

// portLost notes a port that died by itself. The data plane calls it.
func (u *UDP) portLost(id tunnel.PortID) {
	u.lostMu.Lock()
	u.lost[id] = true
	u.lostMu.Unlock()
	u.nudge(changedAll)
}

// Close frees what NewUDP opened, for a backend that will not run. Run does so itself.
func (u *UDP) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return u.Run(ctx)
}
