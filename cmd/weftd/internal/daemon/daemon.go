package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/ops"
	"weft/lease"
	"weft/lease/etcd"
)

// Daemon is one run of weftd. Its exported methods are safe for concurrent use.
type Daemon struct {
	cfg     options.Config
	version string
	log     *slog.Logger
	started time.Time
	systemd *ops.Systemd
	node    string
	store   *etcd.Store
	cache   *lease.Cache
	seed    []byte // network configuration for a store that has none, or nil
	// cached and network are the last run's state; cached is nil if there is none.
	cached  *lease.Cached
	network lease.NetworkConfig

	nudge   chan struct{} // holds one: state has changed, look at it
	resized chan struct{} // holds one: there are many peers more, or less
	thrifty bool          // the collector is ours to run
	// serving is set once packets flow, or are about to: from then on a fault of the
	// store is no reason to end.
	serving latch

	mu      sync.Mutex // protects what follows
	gen     *generation
	waiting string       // what the start waits for; "" when gen is set
	heard   lease.Status // StoreSeen and StoreErr of the start, before gen has its own
}

// Run is the daemon from its checked flags until ctx ends, which returns nil. An
// error says what was wrong and what to do. Device, routes, lease and subnet file
// stay as they are in either case.
func Run(ctx context.Context, cfg options.Config, version string, log *slog.Logger) error {
	d := &Daemon{
		cfg: cfg, version: version, log: log, started: time.Now(),
		systemd: ops.NewSystemd(log), nudge: make(chan struct{}, 1), resized: make(chan struct{}, 1),
		serving: newLatch(), waiting: "config: waiting for the store",
	}
	d.thrifty = thrifty(cfg.Embedded.On)
	context.AfterFunc(ctx, d.systemd.Stopping)
	if err := d.prepare(); err != nil {
		return err
	}
	defer func() { _ = d.store.Close() }() // nothing was written that a close could lose

	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	do := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	if err := d.listen(do); err != nil {
		return err
	}
	if cfg.Embedded.On {
		do(d.embedded)
	}
	do(d.observe)
	do(d.watchdog)
	do(d.settle)
	do(d.live)
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prepare opens what can be opened without waiting for anyone.
func (d *Daemon) prepare() (err error) {
	storeCfg := d.cfg.StoreClient(d.log.With("component", "etcd"))
	warnings, err := storeCfg.Check()
	for _, w := range warnings {
		d.log.Warn("store", "warning", w)
	}
	if err != nil {
		return err
	}
	if d.store, err = etcd.New(storeCfg); err != nil {
		return err
	}
	if d.seed, err = loadSeed(d.cfg); err != nil {
		return err
	}
	var source lease.IdentitySource
	if d.node, source, err = lease.LoadIdentity(lease.IdentityOptions{Given: d.cfg.NodeID, CacheDir: d.cfg.CacheDir}); err != nil {
		return err
	}
	d.cache = lease.NewCache(d.cfg.CacheDir, d.cfg.Store.Prefix)
	d.log.Info("weftd starts", "version", d.version, "node", d.node, "identity", source.String(), "store", d.store.Endpoints(), "prefix", d.cfg.Store.Prefix)
	if source == lease.IdentityRandom {
		d.log.Warn("there is no /etc/machine-id: this node's identity was drawn at random and lasts as long as the cache directory does; "+
			"keep that on the host, or give --node-id, or the next start is another node's to the store", "dir", d.cfg.CacheDir)
	}
	if d.network, d.cached = d.fromCache(); d.cached != nil {
		d.serving.set()
	}
	return nil
}

// listen opens the control socket and the health server, so that the daemon can
// be asked what it waits for.
func (d *Daemon) listen(do func(func(context.Context) error)) error {
	if path := d.cfg.ControlSocket; path != "" {
		l, err := control.Listen(path)
		if err != nil {
			return err
		}
		do(func(ctx context.Context) error { return control.Serve(ctx, l, d) })
	}
	if port := d.cfg.HealthzPort; port != 0 {
		l, err := ops.Listen(d.cfg.HealthzIP, port)
		if err != nil {
			return err
		}
		h := ops.Handler(d.Reasons, ops.NewRegistry(d.snapshot))
		do(func(ctx context.Context) error { return ops.Serve(ctx, l, h) })
	}
	return nil
}

// cacheFile is where lease.Cache keeps the last state.
func (d *Daemon) cacheFile() string { return filepath.Join(d.cfg.CacheDir, "lease.json") }

// changed asks observe to look. It does not block.
func (d *Daemon) changed() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// wait notes what the start waits for, and logs it if it is something else than before.
func (d *Daemon) wait(reason string) {
	d.mu.Lock()
	before := d.waiting
	d.waiting = reason
	d.mu.Unlock()
	if reason != before {
		d.log.Warn("waiting", "reason", reason)
		d.changed()
	}
}

// asked notes how the store answered before there is a keeper to do so.
func (d *Daemon) asked(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard.StoreErr = err
	if err == nil {
		d.heard.StoreSeen = time.Now()
	}
}

// setGeneration publishes g, or that there is none.
func (d *Daemon) setGeneration(g *generation) {
	d.mu.Lock()
	d.gen = g
	if g != nil {
		d.waiting = ""
	}
	d.mu.Unlock()
	d.changed()
}

// current returns the generation, or nil and what is waited for.
func (d *Daemon) current() (*generation, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gen, d.waiting
}

// heardAtStart is what is known of the store while there is no generation.
func (d *Daemon) heardAtStart() lease.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard
}

// latch is a bool that is set once.
type latch struct {
	once *sync.Once
	done chan struct{}
}

func newLatch() latch { return latch{new(sync.Once), make(chan struct{})} }

func (l latch) set() { l.once.Do(func() { close(l.done) }) }

func (l latch) isSet() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// pause waits for the time, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// loadSeed reads the network configuration that an empty store is given.
func loadSeed(cfg options.Config) ([]byte, error) {
	if !cfg.NetConfigGiven {
		return nil, nil
	}
	b, err := readNetConfig(cfg.NetConfigPath)
	if err != nil {
		return nil, fmt.Errorf("--net-config-path: %w", err)
	}
	return b, nil
}
