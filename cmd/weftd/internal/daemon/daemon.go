package daemon

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/ops"
	"weft/cmd/weftd/internal/pods"
	"weft/lease"
	"weft/lease/belief"
	"weft/routing/presence"
)

// Daemon is one run of weftd. Its exported methods are safe for concurrent use.
type Daemon struct {
	cfg     options.Config // as at the start; reloads has those in force
	process process
	self    self
	log     *slog.Logger
	source  source
	// custody keeps descriptors for the next weftd. It is there before anything is served on the control socket.
	custody *custody.Custody
	pods    *pods.Set // those that are attached directly

	standing published
	lastGood *lastGood
	degraded degraded
	reloads  reloads
	upgrades upgrades
}

// process is this run of the program.
type process struct {
	version string
	started time.Time
	systemd *ops.Systemd
	memory  *memory
	history *events.Log
	claim   presence.HostClaim // of the network and the port, until the process ends
	ctx     context.Context    // ends with the run
	end     context.CancelCauseFunc
}

// self tells this node from others.
type self struct {
	state string // names our state directory; "" if it cannot be named
	name  string // what our record says that people call us; "" in Kubernetes, where the Node has a name
}

// Run runs the daemon with checked flags until ctx ends; then it returns nil. An
// error says what was wrong and what to do. Device, routes, lease and subnet file
// stay as they are in either case.
func Run(ctx context.Context, cfg options.Config, program Program, version string,
	log *slog.Logger) (err error) {
	history, log, ended := keepHistory(cfg.CacheDir, log)
	defer func() { ended(err) }()
	d := &Daemon{
		cfg: cfg, log: log,
		process: process{
			version: version, started: time.Now(), systemd: ops.NewSystemd(log), memory: newMemory(cfg.Workers),
			history: history,
		},
		standing: published{nudge: make(chan struct{}, 1), serving: newLatch()},
		upgrades: newUpgrades(program), reloads: reloads{program: program, adopt: make(chan adoption)},
	}
	d.reloads.settings.Store(&cfg)
	context.AfterFunc(ctx, d.process.systemd.Stopping)
	defer d.closePods()
	if err := d.prepare(); err != nil {
		return err
	}
	defer func() { _ = d.source.close() }()        // nothing was written that a close could lose
	defer func() { _ = d.process.claim.Close() }() // nor here

	ctx, cancel := context.WithCancelCause(ctx)
	d.process.ctx, d.process.end = ctx, cancel
	if err := d.takeArrival(); err != nil {
		return err
	}
	if cfg.Replace && d.upgrades.arrival == nil {
		if err := d.askYield(ctx); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	defer d.closeCustody()
	defer wg.Wait()
	defer cancel(nil)
	do := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	if err := d.listen(ctx, do); err != nil {
		return err
	}
	if s, ok := d.source.(runner); ok {
		do(func(ctx context.Context) error { return s.run(ctx, d.standing.serving.isSet) })
	}
	do(d.observe)
	do(d.watchdog)
	do(d.pods.Run)
	do(d.serveNetworks)
	do(d.hangups)
	do(d.watchCertificates)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case s := <-d.upgrades.swaps:
			s.err <- d.upgrades.exec(s.program, s.state)
		}
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prepare opens what can be opened without waiting for anyone.
func (d *Daemon) prepare() (err error) {
	d.log.Info("weftd starts", "event", events.Started, "version", d.process.version)
	d.sayPlace()
	if d.source, err = openSource(d.cfg, d.log); err != nil {
		return err
	}
	d.identify(d.source.info().node)
	d.self.name = d.hostName()
	if d.self.state, err = lease.LoadState(d.cfg.CacheDir); err != nil {
		d.degraded.note(d.log, "state directory: this node cannot be told from a copy of it, but by its address",
			err)
	}
	d.lastGood = openLastGood(d.cfg.CacheDir, d.source, d.log)
	if d.lastGood.cached == nil {
		return d.source.info().fault
	}
	d.identify(d.lastGood.saved.node)
	d.standing.serving.set()
	return nil
}

// cacheFile returns the path at which belief.Cache keeps the last state.
func (d *Daemon) cacheFile() string { return filepath.Join(d.cfg.CacheDir, belief.CacheFile) }

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

// pause waits for d. It returns false if ctx ended first.
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
