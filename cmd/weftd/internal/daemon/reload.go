package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/reexec"
)

// Program is what the daemon asks of the program that it runs in, for a reload.
type Program struct {
	// Hangups asks for a reload with each signal; nil never does.
	Hangups <-chan os.Signal
	// Read reads the settings as at the start; nil if they cannot be read again.
	Read func() (options.Config, error)
	// Arrival is what the program before left in this process, nil after an ordinary start. Exec executes
	// another one, and returns only with an error.
	Arrival *reexec.Arrival
	Exec    func(reexec.Program, reexec.State) error
	// Log changes level and format of the log.
	Log func(options.Log)
}

// These bound the parts of a reload, so that who waits for it gets an answer.
const (
	sourceTime  = 8 * time.Second // to try a connection to the store
	readTime    = 5 * time.Second // to read the network configuration
	adoptTime   = 3 * time.Second // until the overlay in use has compared the network configuration
	inPlaceTime = 4 * time.Second // until another one is in place
)

// ToRestart says how a setting that a reload cannot change comes into force.
const ToRestart = "takes a restart: weft upgrade, or systemctl restart weftd"

// reloads is what reloads share, and the looks at files by which the source is reached.
type reloads struct {
	program      Program
	one          sync.Mutex                     // held by the one that is under way
	settings     atomic.Pointer[options.Config] // those in force
	certificates atomic.Pointer[[]string]       // what is to be said of the files by which the source is reached
	adopt        chan adoption                  // asks the overlay in use for the source's network configuration
}

// settings returns the settings in force.
func (d *Daemon) settings() options.Config {
	return *d.reloads.settings.Load()
}

// hangups reloads whenever SIGHUP says so. The log has the result.
func (d *Daemon) hangups(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.reloads.program.Hangups:
			if _, err := d.Reload(ctx); err != nil && ctx.Err() == nil {
				d.log.Error("nothing was reloaded", "reason", err)
			}
		}
	}
}

// Reload implements control.Reloader. Settings are taken up all or none; what has to be tried, which is the
// way to the store and the network configuration, each on its own.
func (d *Daemon) Reload(ctx context.Context) (control.Reloaded, error) {
	d.reloads.one.Lock()
	defer d.reloads.one.Unlock()
	defer d.process.systemd.Reloading()()
	if err := ctx.Err(); err != nil {
		return control.Reloaded{}, err
	}
	d.log.Info("reloading")
	// Lists that are empty are no null in JSON.
	out := control.Reloaded{Changed: []control.ReloadChange{}, Restart: []control.ReloadChange{},
		Faults: []string{}, Notes: []string{}}
	before := d.settings()
	now := before
	if d.reloads.program.Read != nil {
		var err error
		if now, err = d.reloads.program.Read(); err != nil {
			for line := range strings.Lines(err.Error()) {
				if line = strings.TrimSpace(line); line != options.ErrUsage.Error() {
					out.Faults = append(out.Faults, line)
				}
			}
			out.Notes = append(out.Notes, "nothing was changed, since not all settings are good")
			d.tellReloaded(out)
			return out, nil
		}
	}
	read, err := d.reloadSource(ctx, before.With(now, true))
	if err != nil {
		out.Faults = append(out.Faults, fmt.Sprintf("the way to the %s is as before: %v",
			d.source.info().name, err))
	}
	if read {
		out.Changed = append(out.Changed, control.ReloadChange{Key: "credentials", Detail: "the way to the " +
			d.source.info().name + " was made anew, with the files as they are now"})
	}
	after := before.With(now, err == nil)
	d.reloads.settings.Store(&after)
	left := map[string]bool{}
	for _, c := range after.Changes(now) {
		left[c.Name] = true
	}
	for _, c := range before.Changes(now) {
		change := control.ReloadChange{Key: "--" + c.Name, From: c.From, To: c.To}
		switch {
		case c.Effect == options.Idle:
		case c.Effect == options.Restart:
			change.Detail = ToRestart
			out.Restart = append(out.Restart, change)
		case !left[c.Name]:
			out.Changed = append(out.Changed, change)
		}
	}
	if d.reloads.program.Log != nil {
		d.reloads.program.Log(after.Log)
		d.log.Debug("debug messages are logged")
	}
	d.reloadNetwork(ctx, &out)
	d.tellReloaded(out)
	d.changed()
	return out, nil
}

// tellReloaded logs what a reload did.
func (d *Daemon) tellReloaded(r control.Reloaded) {
	for _, c := range r.Changed {
		d.log.Info("reloaded", "change", c.Text(), "detail", c.Detail)
	}
	for _, c := range r.Restart {
		d.log.Warn("not reloaded", "change", c.Text()+": "+c.Detail)
	}
	for _, f := range r.Faults {
		d.log.Error("not reloaded: what was good stays", "cause", f)
	}
	if len(r.Changed)+len(r.Restart)+len(r.Faults) == 0 {
		d.log.Info("reloaded: nothing has changed", "store_revision", r.Revision)
	}
}

// reloadSource reads the files by which the source is reached again, and reports whether anything has
// changed.
func (d *Daemon) reloadSource(ctx context.Context, cfg options.Config) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	return d.source.reload(ctx, cfg)
}

// adoption asks the overlay in use to take up a network configuration, the source's. answer holds one.
type adoption struct {
	offer  choice.Offer
	answer chan adopted
}

// adopted is what came of an adoption.
type adopted struct {
	same  bool     // it is the one in use
	fault error    // why it is not taken up
	does  []string // what it changes
}

// reloadNetwork takes up the network configuration that the source has, and adds to out what came of it.
func (d *Daemon) reloadNetwork(ctx context.Context, out *control.Reloaded) {
	const key = "network configuration"
	note := func(format string, a ...any) { out.Notes = append(out.Notes, key+": "+fmt.Sprintf(format, a...)) }
	before, waiting := d.current()
	if before == nil {
		note("none is in use yet, and that of %s is asked for all the time (%s)", d.source.info().where, waiting)
		return
	}
	offered, err := d.readConfig(ctx, out)
	if err != nil {
		out.Faults = append(out.Faults,
			fmt.Sprintf("%s: that of %s could not be read, and the one in use stays: %v", key, d.source.info().where,
				err))
		return
	}
	a := adoption{offered, make(chan adopted, 1)}
	late := time.NewTimer(adoptTime)
	defer late.Stop()
	var got adopted
	select {
	case d.reloads.adopt <- a:
		select {
		case got = <-a.answer:
		case <-late.C:
			note("%s is being taken up, which takes longer: weft status says how it goes", d.source.info().where)
			return
		case <-ctx.Done():
			return
		}
	case <-late.C:
		note("another one is being taken up already: weft status says how it goes")
		return
	case <-ctx.Done():
		return
	}
	switch {
	case got.fault != nil:
		out.Faults = append(out.Faults, fmt.Sprintf("%s: that of %s is not taken up, and the one in use stays: %v",
			key, d.source.info().where, got.fault))
	case got.same:
		note("that of %s is the one in use", d.source.info().where)
	default:
		change := control.ReloadChange{Key: key, Detail: "that of " + d.source.info().where + " is taken up (" +
			strings.Join(got.does, ", ") + "); " + d.awaitPlace(ctx, before)}
		out.Changed = append(out.Changed, change)
	}
}

// readConfig reads the source's network configuration, and notes in out at which revision.
func (d *Daemon) readConfig(ctx context.Context, out *control.Reloaded) (o choice.Offer, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	o, out.Revision, err = d.source.read(ctx)
	return o, err
}

// awaitPlace waits until the overlay after before is in place, and says how far it is.
func (d *Daemon) awaitPlace(ctx context.Context, before *overlay) string {
	for until := time.Now().Add(inPlaceTime); time.Now().Before(until); {
		if g, _ := d.current(); g != nil && g != before && g.backend.Status().InPlace {
			return "it is in place"
		}
		if !pause(ctx, eager) {
			break
		}
	}
	return fmt.Sprintf("it is not in place yet: weft status says why; if it is not %v after the reload, the "+
		"last good one comes back", choice.TrialFor)
}
