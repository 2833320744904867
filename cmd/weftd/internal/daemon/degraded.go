package daemon

import (
	"log/slog"
	"slices"
	"sync"
)

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
