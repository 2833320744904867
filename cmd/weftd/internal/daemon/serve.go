package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/trust"
	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/subnetenv"
	"weft/routing"
	"weft/routing/event"
	"weft/routing/hostrules"
	"weft/routing/presence"
	"weft/routing/probe"
	"weft/routing/underlay"
)

// overlay is everything that serves one network: backend, rules, and the member that keeps the lease.
type overlay struct {
	network Network
	running choice.Network // the same, as choice is told of it
	cached  bool           // forwarding began from the cache, not with the store
	under   underlay.Options
	kernel  *routing.Kernel // of the TUN
	outside *routing.Kernel // of the underlay: kernel, or another one
	backend *routing.Node
	plane   *routing.Node  // the backend, if it moves packets itself; nil if the kernel does
	former  []netip.Prefix // networks that this node was in before
	before  lease.Subnets  // what the subnet file had
	member  member
	prober  *probe.Prober // nil if peers are not asked whether they answer

	asking  sync.Mutex // protects what follows
	probed  time.Time  // when the prober was last told what there is
	changed bool       // the set has changed since

	under4or6 bool // the underlay's port was inherited

	over atomic.Bool // it has ended, or is about to

	swept bool // what other backends left has been removed; only apply uses it

	sets chan lease.Set // holds the latest set that is not applied yet
	wake chan struct{}  // holds one; says that MTU or underlay changed

	told      *dataPathNews // what the member was told; only observe uses it, and the next two
	looked    time.Time     // when observe last searched for gateways of former subnets
	lookedFor lease.Subnets // and what was ours then

	mu        sync.Mutex // protects what follows
	chosen    underlay.Link
	set       lease.Set      // the last one applied
	config    configState    // how the source's network configuration relates to ours
	fileWhy   string         // why the subnet file is not as it has to be
	file      subnetenv.File // what it has to contain; zero as long as nothing was written
	formerWhy string         // which bridges have gateways of former subnets, "" for none
	resolved  []netip.Addr   // addresses of the store's endpoints that are names
	storeCut  string         // why the overlay cuts the store off; "" if it does not
}

// serve forwards packets, keeps the lease and applies the sets of the source, until ctx ends or one of these
// fails, or c has something else follow; then g is closed. The error wraps errNodeChanged if the cached
// network turned out to be outdated.
func (d *Daemon) serve(ctx context.Context, c *choice.Choice, g *overlay) (after succession, err error) {
	defer g.close()
	if err := d.claimPort(ctx, g); err != nil {
		return after, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { g.over.Store(true) })()
	var wg sync.WaitGroup
	do := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	d.setOverlay(g)
	d.servePods(g)
	defer d.stopPods()
	do(func(ctx context.Context) error { return d.runBackend(ctx, g) })
	do(g.member.Run)
	if g.prober != nil {
		do(g.prober.Run)
	}
	do(func(ctx context.Context) error {
		if after = d.watchConfig(ctx, c, g); after.decided {
			cancel(nil)
		}
		return nil
	})
	do(func(ctx context.Context) error { return d.apply(ctx, g) })
	do(func(ctx context.Context) error { return d.resolveStore(ctx, g) })
	do(func(ctx context.Context) error { return d.watchStoreRoute(ctx, g) })
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return after, err
	}
	return after, nil
}

// newOverlay makes all parts and starts none, since another overlay may be running. The error
// is a *choice.BackendError if the backend could not be made.
func (d *Daemon) newOverlay(ctx context.Context, f Network, cached *belief.Cached) (*overlay, error) {
	kernel, outside, err := d.openKernels()
	if err != nil {
		return nil, err
	}
	g, err := d.newParts(ctx, kernel, outside, f, cached)
	if err != nil {
		closeKernels(kernel, outside)
		return nil, err
	}
	for _, u := range f.config.Unknown {
		d.log.Warn(u.String())
	}
	return g, nil
}

// close frees what newOverlay made. A backend that has run has freed its own parts.
func (g *overlay) close() {
	_ = g.backend.Close()
	closeKernels(g.kernel, g.outside)
}

func (d *Daemon) newParts(ctx context.Context, kernel, outside *routing.Kernel, f Network,
	cached *belief.Cached) (*overlay, error) {
	g := &overlay{
		network: f, running: f.choice(), cached: cached != nil, kernel: kernel, outside: outside,
		under: d.underlayOptions(f),
		sets:  make(chan lease.Set, 1), wake: make(chan struct{}, 1),
		fileWhy: "not written yet",
	}
	g.config.proven, g.running.LastGood = cached != nil, cached != nil
	err := d.claimHost(ctx, kernel, f)
	if err != nil {
		return nil, err
	}
	if g.chosen, err = underlay.Choose(outside, g.under); err != nil {
		return nil, err
	}
	d.log.Info("underlay", "event", event.UnderlayChosen, "link", g.chosen.Name, "mtu", g.chosen.MTU, "local",
		g.chosen.Local(), "public_ip", text(g.chosen.Ext4), "public_ipv6", text(g.chosen.Ext6))
	before := previous(d.cfg.SubnetFile, d.log)
	g.former = former(before, f.config.NetworkConfig)
	g.before = lease.Subnets{V4: before.Subnet, V6: before.IPv6Subnet}
	kept, away := d.keptPorts()
	g.under4or6 = d.hasUnderlay(kept)
	g.backend, err = routing.NewNode(ctx, routing.BackendConfig{
		Kernel: kernel, Outside: g.elsewhere(), Unprivileged: d.cfg.Rootless.Place.User,
		Network: f.config, Node: f.node, StateDir: d.cfg.CacheDir, KeyFile: d.cfg.WireGuardKeyFile,
		Workers: d.cfg.Workers, Former: g.former,
		Underlay: g.chosen, UnderlayOptions: g.under, Forwarding: d.cfg.Underlay.Forwarding,
		MayRunCommands:  func() error { return trust.Commands(d.settings()) },
		Hook:            &d.cfg.Hook,
		UnderlayChanged: func(u underlay.Link) { d.moved(g, u) },
		PortLost:        d.pods.Lost,
		Inherited:       kept, Away: away, Keep: d.keepPort,
		Rules:  d.rulesConfig(f, g.former),
		Logger: d.log.With("component", "backend"),
	})
	if err != nil {
		d.forgetPorts()
		return nil, &choice.BackendError{Err: err}
	}
	if g.backend.Engine() != nil {
		g.plane = g.backend
	} else {
		d.forgetPorts()
	}
	if err := g.portFault(); errors.Is(err, syscall.EACCES) { // which no waiting mends
		return nil, errors.Join(&choice.BackendError{Err: err}, g.backend.Close())
	}
	d.newProber(g)
	g.member, err = d.source.member(f, keeper.Options{
		Node: f.node, State: d.self.state, Local: d.local(g),
		Underlay: presence.Alive{Kernel: outside, From: g.underlay, Port: f.config.Facts().Port},
		Config:   f.config.NetworkConfig, RawConfig: f.config.Raw, Previous: g.before,
		Cache: d.lastGood.cache, Cached: cached, Unproven: cached == nil, Publish: g.publish,
	})
	if err != nil {
		return nil, errors.Join(err, g.backend.Close())
	}
	return g, nil
}

// underlay returns the underlay in use.
func (g *overlay) underlay() underlay.Link {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.chosen
}

// publish keeps the latest set for apply. It does not block.
func (g *overlay) publish(s lease.Set) {
	for {
		select {
		case g.sets <- s:
			return
		default:
		}
		select { // make room; apply may have been faster
		case <-g.sets:
		default:
		}
	}
}

// apply hands every new set to the backend, and then writes the subnet file.
func (d *Daemon) apply(ctx context.Context, g *overlay) error {
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-g.sets:
			why := ""
			if err := g.backend.Apply(ctx, s); err != nil {
				why = err.Error()
			}
			if ctx.Err() != nil {
				return nil // an error of what was interrupted is no fault
			}
			if why != last && why != "" {
				d.log.Warn("not everything is in place; it is tried again", "reason", why)
			}
			last = why
			d.applied(g, s)
			if s.Own.Subnets != (lease.Subnets{}) {
				d.arrivedNow()
			}
		case <-g.wake:
			d.tellPods(g)
			d.writeSubnetFile(g)
		}
		g.probe(true)
		d.removeLeftovers(g, g.backend.Status())
		d.changed()
	}
}

// removeLeftovers deletes, once, what another backend left on this host, but not before the one in use can
// carry packets.
func (d *Daemon) removeLeftovers(g *overlay, status routing.Status) {
	if set, _ := g.state(); g.swept || set.Own.Subnets == (lease.Subnets{}) || !usable(status) {
		return
	}
	removed, err := routing.RemoveLeftovers(g.kernel, g.network.config.NetworkConfig, g.former, status.Devices)
	for _, r := range removed {
		d.log.Info("removed what another backend left", "event", event.TakenOver, "object", r)
	}
	if g.plane == nil { // a data plane of weft's tends its feature itself
		what, also := routing.GiveBackForwarding(d.cfg.CacheDir, false)
		if err = errors.Join(err, also); what != "" {
			d.log.Info("gave back what another backend turned on", "event", event.ReceiveJoining, "feature", what)
		}
	}
	if err != nil {
		d.log.Warn("not everything that another backend left is gone", "reason", err)
	}
	g.swept = err == nil
}

// usable reports whether pods can be given addresses: the device is there, or none is needed.
func usable(s routing.Status) bool { return len(s.Devices) > 0 || s.Up }

// applied stores s as the set that is in force.
func (d *Daemon) applied(g *overlay, s lease.Set) {
	g.mu.Lock()
	before := g.set
	g.set = s
	g.mu.Unlock()
	if s.Own.Subnets != (lease.Subnets{}) {
		d.standing.serving.set()
	}
	g.warnMoved(d.log, before.Own.Subnets, s.Own.Subnets)
	if s.Own.Subnets != before.Own.Subnets || len(s.Peers) != len(before.Peers) {
		d.log.Info("set applied", "own", s.Own.Subnets.String(), "peers", len(s.Peers), "rejected", len(s.Rejected))
	}
	d.tellPeers(before.Peers, s.Peers)
	logRejected(d.log, before.Rejected, s.Rejected)
	d.tellPods(g) // before the file, with which this node is ready and may be asked to attach one
	d.writeSubnetFile(g)
	d.process.memory.tidy(g.backend.Status().Path, before.Own.Subnets == lease.Subnets{}, len(before.Peers),
		len(s.Peers))
}

// warnMoved logs that the node's subnets are not the same as before. The last set has the former ones; before
// the first set the subnet file has them, which a CNI plugin may have read.
func (g *overlay) warnMoved(log *slog.Logger, last, own lease.Subnets) {
	if last == (lease.Subnets{}) {
		last = g.before
	}
	for _, p := range [][2]netip.Prefix{{last.V4, own.V4}, {last.V6, own.V6}} {
		if p[0].IsValid() && p[1].IsValid() && p[0] != p[1] {
			log.Warn("this node's subnet is another one: pods that have an address of the former one are cut off "+
				"until they are made anew", "event", lease.EventSubnetChanged, "before", p[0].String(), "now",
				p[1].String())
		}
	}
}

// logRejected logs, once for every rejected record, the reason.
func logRejected(log *slog.Logger, before, now []lease.Rejected) {
	known := map[string]bool{}
	for _, r := range before {
		known[fmt.Sprint(r.Key, r.Reason)] = true
	}
	for _, r := range now {
		if !known[fmt.Sprint(r.Key, r.Reason)] {
			log.Warn("a record is not believed", "event", events.RecordRejected, "key", r.Key, "reason", r.Reason,
				"detail", r.Detail)
		}
	}
}

// state returns what changes under the overlay's lock: the last set, and why the subnet file could not be
// written.
func (g *overlay) state() (set lease.Set, fileWhy string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.set, g.fileWhy
}

// peers returns the peers of the last set, with the ends of their records as far as they are known by now.
func (g *overlay) peers() []lease.Record {
	set, _ := g.state()
	if m, ok := g.member.(aging); ok {
		return m.Current(set.Peers)
	}
	return set.Peers
}

// rulesConfig is what the host's rules follow from.
func (d *Daemon) rulesConfig(f Network, former []netip.Prefix) *hostrules.Config {
	o := d.cfg.Rules
	return &hostrules.Config{
		Network: f.config.NetworkConfig, Former: former, NoMasquerade: f.config.NoMasquerade,
		Masquerade: o.IPMasq, RandomFully: !o.RandomFullyDisable, Forward: o.ForwardRules, Blackhole: o.Blackhole,
		Resync: o.Resync, RouteProtocol: routing.RouteProtocol,
		Logger: d.log.With("component", "rules"),
	}
}
