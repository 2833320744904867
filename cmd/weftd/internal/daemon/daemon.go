package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/cmd/internal/statefiles"
	"weft/cmd/weftd/internal/ops"
	"weft/cmd/weftd/internal/pods"
	"weft/cmd/weftd/internal/reexec"
	"weft/lease"
	"weft/lease/kube"
	"weft/routing/presence"
)

// Daemon is one run of weftd. Its exported methods are safe for concurrent use.
type Daemon struct {
	cfg     options.Config // as at the start; settings has those that a reload has changed
	program Program
	version string
	log     *slog.Logger
	started time.Time
	systemd *ops.Systemd
	history *events.Log
	source  source
	cache   *lease.Cache
	// cached and recalled are the state that the last run saved; cached is nil if there is none.
	cached   *lease.Cached
	recalled footing
	state    string // names our state directory; "" if it cannot be named
	name     string // what our record says that people call us; "" in Kubernetes, where the Node has a name
	claim    presence.HostClaim
	// custody keeps descriptors for the next weftd. It is there before anything is served on the control socket.
	custody *custody.Custody

	nudge   chan struct{} // holds one; asks observe to read the state, which has changed
	resized chan struct{} // holds one; says that the number of peers has changed by many
	thrifty bool          // we tune the garbage collector, since the operator does not
	// serving is set once packets flow, or are about to. From then on weftd does not end
	// because of a fault of the store.
	serving latch

	// arrival is what the program before left in this process, and arrived what of it is not taken up yet; nil after an
	// ordinary start. carrying is set once a set is in force.
	arrival  *reexec.Arrival
	arrived  *reexec.State
	carrying latch
	inherits int    // ports of the data plane that were taken up; only live writes it
	binary   string // the path by which a program is executed in this one's place
	running  context.Context
	end      context.CancelCauseFunc // of running
	swaps    chan swap

	upgrading sync.Mutex   // held by an upgrade
	changing  sync.RWMutex // held for reading while pods come or go and the key changes, for writing while another program takes this one's place
	left      atomic.Bool  // another process has the ports, or is about to

	pods *pods.Set // those that are attached directly

	reloading sync.Mutex    // held by a reload
	adopt     chan adoption // asks the generation in use for the source's network configuration

	captures atomic.Int32 // how many there are of packets that the kernel moves

	mu   sync.Mutex // protects what follows
	live options.Config
	// certificates are what is to be said of files by which the source is reached.
	certificates []string

	gen       *generation
	node      string                  // our identity; "" as long as it is not known
	waiting   string                  // what the start waits for; "" when gen is set
	listeners map[string]net.Listener // what is served on, by name
	upgrade   control.Upgrade         // the last one
	lacks     map[string]string       // what could not be opened, and why; weftd goes on without it
	heard     lease.Status            // StoreSeen and StoreErr until there is a generation that has its own
}

// Run runs the daemon with checked flags until ctx ends; then it returns nil. An
// error says what was wrong and what to do. Device, routes, lease and subnet file
// stay as they are in either case.
func Run(ctx context.Context, cfg options.Config, program Program, version string, log *slog.Logger) (err error) {
	history, log, ended := keepHistory(cfg.CacheDir, log)
	defer func() { ended(err) }()
	d := &Daemon{
		cfg: cfg, live: cfg, program: program, adopt: make(chan adoption), version: version, log: log, started: time.Now(), history: history,
		systemd: ops.NewSystemd(log), nudge: make(chan struct{}, 1), resized: make(chan struct{}, 1),
		serving: newLatch(), carrying: newLatch(), arrival: program.Arrival, swaps: make(chan swap), binary: binary(os.Args[0]), waiting: "config: not read yet",
	}
	d.thrifty = thrifty()
	context.AfterFunc(ctx, d.systemd.Stopping)
	defer d.closePods()
	if err := d.prepare(); err != nil {
		return err
	}
	defer func() { _ = d.source.close() }() // nothing was written that a close could lose
	defer func() { _ = d.claim.Close() }()  // nor here

	ctx, cancel := context.WithCancelCause(ctx)
	d.running, d.end = ctx, cancel
	if err := d.takeArrival(); err != nil {
		return err
	}
	if cfg.Replace && d.arrival == nil {
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
		do(func(ctx context.Context) error { return s.run(ctx, d.serving.isSet) })
	}
	do(d.observe)
	do(d.watchdog)
	do(d.pods.Run)
	do(d.settle)
	do(d.serveNetworks)
	do(d.hangups)
	do(d.watchCertificates)
	do(d.watchDescriptors)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case s := <-d.swaps:
			s.err <- d.program.Exec(s.program, s.state)
		}
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prepare opens what can be opened without waiting for anyone.
func (d *Daemon) prepare() (err error) {
	d.log.Info("weftd starts", "event", events.Started, "version", d.version)
	d.sayPlace()
	if d.source, err = openSource(d.cfg, d.log); err != nil {
		return err
	}
	d.identify(d.source.info().node)
	d.name = d.hostName()
	d.clearLeftovers(d.cacheFile(), filepath.Join(d.cfg.CacheDir, lease.NodeFile), filepath.Join(d.cfg.CacheDir, lease.StateFile),
		filepath.Join(d.cfg.CacheDir, statefiles.KubeNode), d.cfg.SubnetFile)
	if d.state, err = lease.LoadState(d.cfg.CacheDir); err != nil {
		d.lack("state directory: this node cannot be told from a copy of it, but by its address", err)
	}
	d.cache = lease.NewCache(d.cfg.CacheDir, d.source.info().cache)
	if d.recalled, d.cached = d.fromCache(); d.cached == nil {
		return d.source.info().fault
	}
	d.identify(d.recalled.node)
	d.serving.set()
	return nil
}

// leftoverAge is the age from which a temporary file counts as left over; each is written in a moment.
const leftoverAge = time.Minute

// clearLeftovers removes the temporary files of earlier runs that were killed while they replaced one of paths.
func (d *Daemon) clearLeftovers(paths ...string) {
	left, err := lease.Leftovers(leftoverAge, paths...)
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		d.log.Debug("not every file that was left half-written is gone", "reason", err)
	}
}

// cacheFile returns the path at which lease.Cache keeps the last state.
func (d *Daemon) cacheFile() string { return filepath.Join(d.cfg.CacheDir, lease.CacheFile) }

// changed asks observe to read the state again. It does not block.
func (d *Daemon) changed() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// identify stores our identity.
func (d *Daemon) identify(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.node = node
}

// identity returns our identity, "" if it is not known yet.
func (d *Daemon) identity() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node
}

// wait stores the reason why there is no generation yet, and logs it if it is another one than before.
func (d *Daemon) wait(reason string) {
	d.mu.Lock()
	before := d.waiting
	d.waiting = reason
	d.mu.Unlock()
	if reason != before {
		d.log.Warn("waiting", "event", events.Waiting, "reason", reason)
		d.changed()
	}
}

// asked stores how the source has answered, as long as there is no member that does so.
func (d *Daemon) asked(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard.StoreErr, d.heard.StoreRefuses = err, d.cfg.Kube.On && kube.Refuses(err)
	if err == nil {
		d.heard.StoreSeen = time.Now()
	}
}

// setGeneration publishes g, or that there is none.
func (d *Daemon) setGeneration(g *generation) {
	d.mu.Lock()
	d.gen = g
	if d.waiting = ""; g == nil {
		d.waiting = "config: another one is being taken up"
	}
	d.mu.Unlock()
	d.changed()
}

// current returns the generation, or nil and the reason why there is none yet.
func (d *Daemon) current() (*generation, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gen, d.waiting
}

// heardAtStart returns what is known of the store while there is no generation.
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
