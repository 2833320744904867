package daemon

import (
	"sync/atomic"
	"time"

	"weft/cmd/internal/events"
	"weft/lease"
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
