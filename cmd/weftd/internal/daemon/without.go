package daemon

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/ops"
)

// listen opens the control socket and the health server, so that operators can ask the daemon what it
// waits for. Packets need neither, so what cannot be opened is tried again, unless the control socket
// belongs to another weftd.
func (d *Daemon) listen(ctx context.Context, do func(func(context.Context) error)) error {
	if path := d.cfg.ControlSocket; path != "" {
		open := func() (net.Listener, error) { return control.Listen(path) }
		l, err := d.inheritedOr("control", open)
		if occupied := new(control.OccupiedError); errors.As(err, &occupied) {
			return err
		}
		d.takeUpPods(ctx)
		do(func(ctx context.Context) error {
			return d.keepServing(ctx, "control socket", l, err, open, func(ctx context.Context, l net.Listener) error {
				return control.Serve(ctx, spare(d.serves("control", l)), d.services())
			})
		})
	}
	if d.pods == nil {
		d.takeUpPods(ctx)
	}
	if port := d.cfg.HealthzPort; port != 0 {
		h := ops.Handler(ops.Pages{Snapshot: d.Snapshot, PerPeer: d.cfg.MetricsPerPeer, PerPod: d.cfg.MetricsPerPod})
		if !d.cfg.HealthzIPGiven {
			h = ops.OnlyHere(h, options.MetricsElsewhere)
		}
		open := func() (net.Listener, error) { return ops.Listen(d.cfg.HealthzIP, port) }
		l, err := d.inheritedOr("health", open)
		do(func(ctx context.Context) error {
			return d.keepServing(ctx, "health server", l, err, open, func(ctx context.Context, l net.Listener) error {
				return ops.Serve(ctx, spare(d.serves("health", l)), h)
			})
		})
	}
	return nil
}

// serves notes what is listened on, for the program that takes this one's place, and returns it for use.
func (d *Daemon) serves(name string, l net.Listener) net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listeners == nil {
		d.listeners = map[string]net.Listener{}
	}
	d.listeners[name] = l
	return l
}

// openFirst and openMost are the shortest and the longest time between tries to open one of them.
const openFirst, openMost = time.Second, 10 * time.Second

// keepServing serves on l until ctx ends. If err says why there is no l, it calls open until that makes one.
func (d *Daemon) keepServing(ctx context.Context, what string, l net.Listener, err error, open func() (net.Listener, error), serve func(context.Context, net.Listener) error) error {
	for wait := openFirst; ; wait = min(2*wait, openMost) {
		if err == nil {
			d.lack(what, nil)
			wait, err = openFirst, serve(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		d.lack(what, err)
		if !pause(ctx, wait) {
			return nil
		}
		l, err = open()
	}
}

// lack notes that the daemon goes on without what because of why; a nil why says that it has it now. Changes are
// logged.
func (d *Daemon) lack(what string, err error) {
	d.mu.Lock()
	before, was := d.lacks[what]
	switch {
	case err == nil:
		delete(d.lacks, what)
	case d.lacks == nil:
		d.lacks = map[string]string{}
		fallthrough
	default:
		d.lacks[what] = err.Error()
	}
	d.mu.Unlock()
	switch {
	case err == nil && was:
		d.log.Info("there is again what was missing", "what", what)
	case err != nil && before != err.Error():
		d.log.Warn("forwarding goes on without", "what", what, "reason", err)
	}
}

// lacking returns what the daemon goes on without, and why.
func (d *Daemon) lacking() (notes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, why := range d.lacks {
		notes = append(notes, what+": "+why)
	}
	slices.Sort(notes)
	return notes
}
