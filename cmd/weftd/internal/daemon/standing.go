package daemon

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/choice"
	"weft/lease"
	"weft/lease/belief"
	"weft/lease/kube"
)

// standing is how far weftd has come.
type standing struct {
	overlay *overlay     // nil while there is none
	waiting string       // what the start waits for; "" when there is an overlay
	node    string       // our identity; "" as long as it is not known
	heard   lease.Status // StoreSeen and StoreErr until there is an overlay, whose member has its own
}

// published has the standing that everybody reads. The goroutine of serveNetworks alone replaces it, once it
// runs.
type published struct {
	at    atomic.Pointer[standing]
	nudge chan struct{} // holds one; asks observe to read the state, which has changed
	// serving is set once packets flow, or are about to. From then on weftd does not end
	// because of a fault of the store.
	serving latch
}

func (p *published) read() standing {
	if s := p.at.Load(); s != nil {
		return *s
	}
	return standing{waiting: "config: not read yet"}
}

func (p *published) change(f func(*standing)) (before standing) {
	before = p.read()
	now := before
	f(&now)
	p.at.Store(&now)
	return before
}

// changed asks observe to read the state again. It does not block.
func (d *Daemon) changed() {
	select {
	case d.standing.nudge <- struct{}{}:
	default:
	}
}

// identify stores our identity.
func (d *Daemon) identify(node string) { d.standing.change(func(s *standing) { s.node = node }) }

// identity returns our identity, "" if it is not known yet.
func (d *Daemon) identity() string { return d.standing.read().node }

// wait stores the reason why there is no overlay yet, and logs it if it is another one than before.
func (d *Daemon) wait(reason string) {
	if before := d.standing.change(func(s *standing) { s.waiting = reason }); before.waiting != reason {
		d.log.Warn("waiting", "event", events.Waiting, "reason", reason)
		d.changed()
	}
}

// asked stores how the source has answered, as long as there is no member that does so.
func (d *Daemon) asked(err error) {
	d.standing.change(func(s *standing) {
		s.heard.StoreErr, s.heard.StoreRefuses = err, d.cfg.Kube.On && kube.Refuses(err)
		if err == nil {
			s.heard.StoreSeen = time.Now()
		}
	})
}

// setOverlay publishes g, or that there is none.
func (d *Daemon) setOverlay(g *overlay) {
	d.standing.change(func(s *standing) {
		s.overlay, s.waiting = g, ""
		if g == nil {
			s.waiting = "config: another one is being taken up"
		}
	})
	d.changed()
}

// current returns the overlay, or nil and the reason why there is none yet.
func (d *Daemon) current() (*overlay, string) {
	s := d.standing.read()
	return s.overlay, s.waiting
}

// degraded is what the daemon goes on without, and why. It is safe for concurrent use.
type degraded struct {
	mu  sync.Mutex
	why map[string]string
}

// note notes that the daemon goes on without what because of err; a nil err says that it has it now. Changes
// are logged.
func (d *degraded) note(log *slog.Logger, what string, err error) {
	d.mu.Lock()
	before, was := d.why[what]
	switch {
	case err == nil:
		delete(d.why, what)
	case d.why == nil:
		d.why = map[string]string{}
		fallthrough
	default:
		d.why[what] = err.Error()
	}
	d.mu.Unlock()
	switch {
	case err == nil && was:
		log.Info("there is again what was missing", "what", what)
	case err != nil && before != err.Error():
		log.Warn("forwarding goes on without", "what", what, "reason", err)
	}
}

// notes returns what is missing, with the reasons.
func (d *degraded) notes() (notes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, why := range d.why {
		notes = append(notes, what+": "+why)
	}
	slices.Sort(notes)
	return notes
}

// lastGood has the last configuration that worked, and the set that was saved with it. One goroutine
// at a time uses it, which opens or serves a network.
type lastGood struct {
	cache  *belief.Cache
	source source
	log    *slog.Logger
	// saved and cached are what the last run saved; cached is nil if there is none, or it has been forgotten.
	saved  Network
	cached *belief.Cached
}

// openLastGood reads what the last run saved. If there is nothing, weftd asks the source first. No fault of
// the cache keeps the daemon from starting.
func openLastGood(dir string, src source, log *slog.Logger) *lastGood {
	l := &lastGood{cache: belief.NewCache(dir, src.info().cache), source: src, log: log}
	first := "the " + src.info().name + " has to answer first"
	c, err := l.cache.Load()
	if err != nil {
		log.Info("no last state: "+first, "reason", err)
		return l
	}
	if l.saved, err = src.recall(c); err != nil {
		log.Warn("the last state cannot be used: "+first, "reason", err)
		return l
	}
	l.cached = &c
	return l
}

// forget lets what the last run saved go: in a large network it is large, and soon outdated. Later it is read
// again.
func (l *lastGood) forget() { l.cached = nil }

// read returns the last good configuration with its set, which is nil if there is none.
func (l *lastGood) read() (Network, *belief.Cached) {
	if l.cached != nil {
		return l.saved, l.cached
	}
	c, err := l.cache.Load()
	if err != nil {
		return Network{}, nil
	}
	f, err := l.source.recall(c)
	if err != nil {
		l.log.Debug("there is no last good configuration", "reason", err)
		return Network{}, nil
	}
	return f, &c
}

// network is the last good one, nil if there is none.
func (l *lastGood) network() *choice.Network {
	f, cached := l.read()
	if cached == nil {
		return nil
	}
	n := f.choice()
	n.LastGood = true
	return &n
}
