package daemon

import (
	"context"
	"errors"
	"net"
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
		d.openPods(ctx)
		do(func(ctx context.Context) error {
			return d.keepServing(ctx, "control socket", l, err, open, func(ctx context.Context, l net.Listener) error {
				return control.Serve(ctx, d.serves("control", l), d.services())
			})
		})
	}
	if d.pods == nil {
		d.openPods(ctx)
	}
	if port := d.cfg.HealthzPort; port != 0 {
		h := ops.Handler(ops.Pages{Snapshot: d.Snapshot, PerPeer: d.cfg.MetricsPerPeer,
			PerPod: d.cfg.MetricsPerPod})
		if !d.cfg.HealthzIPGiven {
			h = ops.OnlyHere(h, options.MetricsElsewhere)
		}
		open := func() (net.Listener, error) { return ops.Listen(d.cfg.HealthzIP, port) }
		l, err := d.inheritedOr("health", open)
		do(func(ctx context.Context) error {
			return d.keepServing(ctx, "health server", l, err, open, func(ctx context.Context, l net.Listener) error {
				return ops.Serve(ctx, d.serves("health", l), h)
			})
		})
	}
	return nil
}

// serves notes what is listened on, for the program that takes this one's place, and returns it for use.
func (d *Daemon) serves(name string, l net.Listener) net.Listener {
	d.upgrades.mu.Lock()
	defer d.upgrades.mu.Unlock()
	if d.upgrades.listeners == nil {
		d.upgrades.listeners = map[string]net.Listener{}
	}
	d.upgrades.listeners[name] = l
	return l
}

// openFirst and openMost are the shortest and the longest time between tries to open one of them.
const openFirst, openMost = time.Second, 10 * time.Second

// keepServing serves on l until ctx ends. If err says why there is no l, it calls open until that makes one.
func (d *Daemon) keepServing(ctx context.Context, what string, l net.Listener, err error,
	open func() (net.Listener, error), serve func(context.Context, net.Listener) error) error {
	for wait := openFirst; ; wait = min(2*wait, openMost) {
		if err == nil {
			d.degraded.note(d.log, what, nil)
			wait, err = openFirst, serve(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		d.degraded.note(d.log, what, err)
		if !pause(ctx, wait) {
			return nil
		}
		l, err = open()
	}
}
