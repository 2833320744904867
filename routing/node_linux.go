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
	"weft/routing/internal/wireguard"
	"weft/routing/underlay"
	"weft/tunnel"
)

// Node is one way to carry packets between subnets, running on this host: it keeps the kernel, and for types
// that need it a data plane, as its type wants them for the latest set. It is level-triggered: it is given
// complete sets, and keeps everything as the latest one says. Its methods are safe for concurrent use.
type Node struct {
	cfg     BackendConfig
	log     *slog.Logger
	k       *kernel.Kernel
	out     *kernel.Kernel // the underlay's namespace: k, unless BackendConfig.Outside is another one
	kind    settings
	about   Facts            // kind's
	plane   *plane.Plane     // nil if the kernel moves the packets
	driver  driver           // idle if all that the type does is the kernel's state
	rules   *hostrules.Rules // nil if the host's rules are nobody's business here
	monitor *kernel.Monitor
	outside *kernel.Monitor              // of the underlay's link; nil unless it is in another namespace
	kick    chan struct{}                // holds one: something may have changed
	dirty   atomic.Uint32                // what: a change
	pods    atomic.Pointer[[]netip.Addr] // of the data plane's ports; nil until it is known
	grace   time.Duration                // underlayGrace, but in tests
	release string                       // the kernel's, but in tests

	mu      sync.Mutex // serializes reconciling, and guards what follows and the plane
	set     lease.Set
	under   underlay.State
	devices underlay.Devices          // the underlay's, as they were last seen, of a type that the data plane serves
	hops    map[netip.Addr]kernel.Hop // to the peers; nil for a type that does not ask for them
	want    decision
	inPlace kernel.State   // what was in place last: a change without another want is a repair
	sealed  bool           // the rules of a seal were in place once
	settled bool           // all was in place once, so that what flannel left is taken over
	made    map[string]int // the numbers of the devices that we made, by name
	absent  []string       // the devices that the driver could not make
	warned  map[string]bool
	strict  kernel.StrictDrops
	shadow  shadowWatch
	bridged []kernel.Bridged // the bridges that have addresses of directly attached pods
	proxied map[int]bool     // the numbers of those on which the host may answer for such pods
	ended   bool
	halted  bool        // Node.Pause
	over    func() bool // Run is to end; nil before it began

	statusMu sync.Mutex // a leaf lock, so that Status never waits for the kernel
	status   Status
}

// driver is the part of a type that has a life of its own, beside the kernel's state: devices, commands, a
// controller. Its methods are called with the node's lock held, but for tell.
type driver interface {
	// sync does the driver's part for the situation, before the kernel's state is made or after it
	// (Facts.last); d is what the type wants in it. Failed steps are tried again.
	sync(ctx context.Context, s situation, d *desired) outcome
	// next is when sync is to be called again; the zero time for whenever.
	next() time.Time
	// tell adds the driver's part to a status.
	tell(*Status)
	// peers are those of devices that encrypt, and rotate gives these a new private key, which sync tells
	// them.
	peers() ([]EncryptedPeer, error)
	rotate() (before, after wireguard.PublicKey, err error)
	// close ends what the driver opened; ran says that the node did more than being made.
	close(ctx context.Context, ran bool) error
}

// idle is what most drivers do at most of these times: nothing.
type idle struct{}

func (idle) sync(context.Context, situation, *desired) (out outcome) { return out }
func (idle) next() time.Time                                         { return time.Time{} }
func (idle) tell(*Status)                                            {}
func (idle) peers() ([]EncryptedPeer, error)                         { return nil, nil }
func (idle) rotate() (before, after wireguard.PublicKey, err error)  { return before, after, ErrNoKey }
func (idle) close(context.Context, bool) error                       { return nil }

// outcome is the result of a driver's work.
type outcome struct {
	// devices says why one could not be made, and absent which; notes are what works less well than it could.
	devices       error
	absent, notes []string
	// node says what is wrong for the node itself; if it wraps errNotStarted, no pod can be given an address.
	node error
	// peers has the records for which something failed, or with the zero Subnets what failed for none in
	// particular. They do not make the node unready.
	peers []peerFault
}

// errNotStarted says of a driver that what the node itself needs is not there.
var errNotStarted = errors.New("the node's own part is not in place")

// peerFault is what went wrong for the record with those subnets, or for one of them.
type peerFault struct {
	subnets lease.Subnets
	subnet  netip.Prefix // the zero Prefix for both
	err     error
}

// NewNode makes the node that c.Network names: it opens descriptors, and starts nothing that runs on. The
// caller runs Run or calls Close. ctx bounds what has to be done before there is a lease. Inherited ports are
// closed if it fails.
func NewNode(ctx context.Context, c BackendConfig) (*Node, error) {
	n, err := newNode(ctx, c)
	if err != nil {
		c.disinherit()
		return nil, fmt.Errorf("%s backend: %w", c.Network.BackendType, err)
	}
	return n, nil
}

func newNode(ctx context.Context, c BackendConfig) (*Node, error) {
	f := c.Network.Facts()
	u := c.Underlay
	switch {
	case f.Direct && (u.Ext4 != u.Addr4 || u.Ext6 != u.Addr6):
		return nil,
			fmt.Errorf("peers would be told %v, and %s has %v: routes need the address of the link itself: "+
				"leave out --public-ip, or use vxlan or udp, which pass a NAT", valid(u.Ext4, u.Ext6), u.Name, u.Local())
	case c.Kernel == nil:
		return nil, errors.New("BackendConfig.Kernel is missing")
	}
	if c.Outside != nil {
		if err := c.Network.WorksElsewhere(); err != nil {
			return nil, err
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	kind := c.Network.settings
	var d driver
	if o, ok := c.Network.settings.(opener); ok {
		var err error
		if kind, d, err = o.open(ctx, c); err != nil {
			return nil, err
		}
	}
	if d == nil {
		d = idle{}
	}
	sizes, err := kind.sizes(u)
	if err != nil {
		return nil, fmt.Errorf("over %s: %w", u.Name, err)
	}
	b := &Node{
		cfg: c, log: c.Logger.With("backend", c.Network.BackendType), k: c.Kernel, out: c.underlayKernel(),
		kind: kind, about: kind.Facts(), driver: d, kick: make(chan struct{}, 1), grace: underlayGrace,
		release: c.Kernel.Release(), warned: map[string]bool{}, made: map[string]int{},
	}
	b.under.Now = u
	b.status = Status{Type: b.Type(), MTU: sizes.inner, Path: b.about.path, Encrypt: b.about.encrypt,
		Underlay: u}
	return b, b.open()
}

func (c *Node) open() (err error) {
	if err := c.makeRules(); err != nil {
		return err
	}
	if c.monitor, err = c.k.Subscribe(); err != nil {
		return err
	}
	if c.away() {
		c.outside, err = c.out.Subscribe()
	}
	if err == nil && c.about.plane != nil {
		err = c.openPlane(*c.about.plane)
	}
	if err != nil {
		c.closeMonitors()
	}
	return err
}

// openPlane opens the data plane, for a type whose packets it moves.
func (c *Node) openPlane(o plane.Options) (err error) {
	o.Inherited, o.Away, o.Keep = c.cfg.Inherited, c.cfg.Away, c.cfg.Keep
	o.Workers, o.Logger, o.Nudge, o.PortLost = c.cfg.Workers, c.log, c.nudge, c.cfg.PortLost
	o.Forwarding, o.StateDir = cmp.Or(c.cfg.Forwarding, o.Forwarding), c.cfg.StateDir
	if o.Outside = c.cfg.Outside; c.cfg.Unprivileged {
		err = unprivileged(&o)
	}
	c.status.Path = o.Path.String()
	if err == nil {
		err = o.Obstacle(c.out, c.cfg.Underlay.Name, c.cfg.Underlay.Local())
	}
	if err == nil {
		c.plane, err = plane.New(c.k, o)
	}
	if err != nil {
		return err
	}
	c.protect() // it is the data plane now that receives
	return nil
}

// Engine is the data plane, for its counters; nil where the kernel moves the packets.
func (c *Node) Engine() *tunnel.Engine {
	if c.plane == nil {
		return nil
	}
	return c.plane.Engine()
}

// Recv names what this node parses besides one whole packet in a datagram, for its lease record: nothing
// where the kernel receives. A node that encrypts between links says that it takes what comes in plain by its
// own.
func (c *Node) Recv() []string {
	switch {
	case c.about.plane != nil:
		return c.about.recv.Names()
	case c.about.takesPlain(c.Status().Underlay, c.away()):
		return []string{RecvPlain}
	}
	return nil
}

// DeviceDrops returns how many packets the kernel dropped because the TUN's queue was full or nobody
// had the TUN open. No counter of the data plane has these.
func (c *Node) DeviceDrops() (n uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.plane == nil || c.plane.Device() == "" {
		return 0, nil
	}
	err = c.k.Do(func() error {
		counters, err := kernel.ReadCounters(c.plane.Device())
		n = counters.TxDropped
		return err
	})
	return n, err
}

// Type is the name in the network config, in lower case.
func (c *Node) Type() string { return c.cfg.Network.BackendType }

// RecordType is the lease record's BackendType: Type, but "" for udp, as flannel has it.
func (c *Node) RecordType() string { return c.about.record }

// Publish returns what the lease record carries as BackendData and BackendV6Data; nil for none.
func (c *Node) Publish() (data, v6data json.RawMessage) { return c.kind.publish() }

// MTU is the largest inner packet, in bytes: for subnet.env and the lease record. It follows the underlay's
// MTU.
func (c *Node) MTU() int { return c.Status().MTU }

// Status is a snapshot. It does not wait for the kernel.
func (c *Node) Status() Status {
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	st := c.status
	if c.rules != nil {
		st.Rules = c.rules.Status()
	}
	c.driver.tell(&st)
	return st
}

// Apply takes the complete set, our own record included, and returns when the kernel and the data plane
// follow it, or with every error joined; what failed is retried by Run. It works before Run runs. Nothing
// changes while the set has no own subnet. The host's rules come first, so that no packet is ahead of them,
// unless those of an earlier run are there: then packets do not wait for iptables.
func (c *Node) Apply(ctx context.Context, s lease.Set) error {
	if c.rules == nil {
		return c.apply(ctx, s)
	}
	c.mu.Lock()
	c.seal() // at first before it is known who may do without
	c.mu.Unlock()
	present := false
	// Do itself fails only if the namespace cannot be entered, and then apply says so too.
	_ = c.k.Do(func() error { present = c.rules.Present(); return nil })
	// it has logged and published what is wrong
	rules := func() { _ = c.k.Do(func() error { return c.rules.Apply(ctx, s) }) }
	if !present {
		rules()
		return c.apply(ctx, s) // a seal that has another exception by then wakes the rules' own loop
	}
	err := c.apply(ctx, s)
	rules()
	return err
}

// apply is Apply for the kernel's objects and the data plane.
func (c *Node) apply(ctx context.Context, s lease.Set) error {
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

// Run carries packets and repairs what others change, until ctx ends; then it returns nil. Addresses and
// routes stay, for the next process.
func (c *Node) Run(ctx context.Context) error {
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
	if c.rules != nil && started {
		wg.Go(func() { defer cancel(); ruled = c.k.Do(func() error { return c.rules.Run(ctx) }) })
	}
	c.repair(ctx)
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true // from here on the Kernel may be closed
	// Detached: the context that would bound it has just ended.
	carried = errors.Join(carried, c.driver.close(context.WithoutCancel(ctx), started))
	if c.plane != nil {
		carried = errors.Join(carried, c.plane.Close())
	}
	return kernel.Wrap(c.Type()+" backend", errors.Join(carried, monitored, watched, ruled))
}

// Close frees what was opened, for a node that will not run; Run does so itself.
func (c *Node) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return c.Run(ctx)
}

// EncryptedPeer is what a device of WireGuard knows of a peer.
type EncryptedPeer struct {
	// Device is the one by which the peer's packets go.
	Device string
	wireguard.PeerState
}

// Why a peer that packets are for is not heard.
const (
	PeerHeard          = wireguard.Heard
	PeerNeverAnswered  = wireguard.NeverAnswered
	PeerAnsweredBefore = wireguard.AnsweredBefore
)

// EncryptedPeers lists the peers of all devices of WireGuard as they are now. The error says why a device did
// not tell, and comes beside the peers of the others.
func (c *Node) EncryptedPeers() ([]EncryptedPeer, error) { return c.driver.peers() }

// ErrNoKey says that the type has none.
var ErrNoKey = errors.New("only wireguard has a key")

// RotateKey gives the node a new private key: in its file, on its devices, and in what Publish returns from
// then on. The sessions with all peers end, and begin anew when these know the new key: the caller has the
// record follow at once. An error says that the node still has the old key; what the devices did not take is
// tried again by Run.
func (c *Node) RotateKey(ctx context.Context) (before, after wireguard.PublicKey, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return before, after, fmt.Errorf("%s backend: it has ended", c.Type())
	}
	if before, after, err = c.driver.rotate(); err != nil {
		return before, after, err
	}
	c.want.stale = true // the record's own key is another
	if c.reconcile(ctx, kernel.ChangedAll) != nil {
		c.nudge(kernel.ChangedAll)
	}
	return before, after, nil
}

// tendForwarding looks after how datagrams arrive, and shows it.
func (c *Node) tendForwarding() {
	says := c.plane.TendForwarding(c.under.Now.Name)
	c.statusMu.Lock()
	c.status.Forwarding = says
	c.statusMu.Unlock()
}

// askAgain is when peers that do not answer are to be asked for once more; nil for never.
func (c *Node) askAgain() <-chan time.Time {
	if c.plane == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plane.Again()
}

// nudge asks Run to reconcile what may have changed. It does not block.
func (c *Node) nudge(ch kernel.Change) {
	c.dirty.Or(uint32(ch))
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// networks are those of the config, then the former ones.
func (c *Node) networks() []netip.Prefix {
	return slices.Concat(c.cfg.Network.Networks(), c.cfg.Former)
}

// outer are the peers' addresses.
func (c *Node) outer() []netip.Addr {
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
func (c *Node) logger() *slog.Logger {
	if c.plane == nil {
		return c.log
	}
	return c.log.With("device", c.plane.Device())
}

// warnOnce logs a fault that does not matter enough to fail, the first time, with more attributes.
func (c *Node) warnOnce(err error, more ...any) {
	if err != nil && !c.warned[err.Error()] {
		c.warned[err.Error()] = true
		c.log.Warn("not set", append([]any{"error", err}, more...)...)
	}
}
