package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/rights"
	"weft/tunnel/port"
)

// portItem begins the names of the data plane's ports' items.
const portItem = "port "

// forgetWait is how long a backend waits until a port that it closes is kept no more. After that another port
// in its place may not be opened at first, and is tried again.
const forgetWait = 300 * time.Millisecond

// keepPort has custody keep a port of the data plane, or forget it. A backend calls it, with its lock held,
// so it does not wait for the service manager, which may take seconds.
func (d *Daemon) keepPort(name string, k *port.Kept) {
	if k == nil {
		// another one in its place cannot be opened while the program before may come back to it
		d.upgrades.arrival.Settle()
		ctx, cancel := context.WithTimeout(d.process.ctx, forgetWait)
		defer cancel()
		if err := d.custody.DropOne(ctx, portItem+name); err != nil {
			d.log.Debug("a port that is closed may be kept still", "port", name, "reason", err)
		}
		return
	}
	meta, err := json.Marshal(k)
	if err == nil {
		err = d.custody.Put(custody.Item{Name: portItem + name, Meta: meta, FDs: k.FDs, Optional: true})
	}
	if err != nil {
		d.log.Warn("a restart of weftd will lose packets: a port is not kept", "port", name, "reason", err)
	}
}

// keptPorts returns the ports that the last weftd left, once, and for how long nobody read them.
func (d *Daemon) keptPorts() (map[string]port.Kept, time.Duration) {
	items, away := d.custody.Take(portItem)
	out := make(map[string]port.Kept, len(items))
	for _, i := range items {
		var k port.Kept
		if err := json.Unmarshal(i.Meta, &k); err != nil {
			d.log.Warn("a port that was kept is of no use to this weftd", "port", i.Name, "reason", err)
			rights.Close(i.FDs)
			d.keepPort(strings.TrimPrefix(i.Name, portItem), nil)
			continue
		}
		k.FDs = i.FDs
		out[strings.TrimPrefix(i.Name, portItem)] = k
	}
	d.upgrades.inherits += len(out)
	return out, away
}

// hasUnderlay reports whether a port on the underlay is among kept, so that it is no other process that has
// the port.
func (d *Daemon) hasUnderlay(kept map[string]port.Kept) bool {
	for name := range kept {
		if name != "tun" {
			return true
		}
	}
	return false
}

// forgetPorts ends the keeping of all ports of a data plane, where there is none, or no such one.
func (d *Daemon) forgetPorts() {
	ctx, cancel := context.WithTimeout(d.process.ctx, keepWait)
	defer cancel()
	if err := d.custody.Drop(ctx, portItem); err != nil {
		d.log.Debug("ports may be kept still", "reason", err)
	}
}

// runBackend runs g's backend until ctx ends. What has the ports of its data plane then, another process or
// who keeps them for the next one, finds them as they are.
func (d *Daemon) runBackend(ctx context.Context, g *overlay) error {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		if d.leavesPorts() {
			g.backend.Abandon()
		}
		cancel(context.Cause(ctx))
	})
	defer stop()
	return g.backend.Run(own)
}

// leavesPorts reports whether the ports are to be left as they are, since the daemon ends and somebody has
// them.
func (d *Daemon) leavesPorts() bool {
	if d.upgrades.left.Load() || d.upgrades.arrival.Pending() {
		return true
	}
	if d.process.ctx.Err() == nil {
		return false // another network configuration takes this one's place
	}
	d.keepNow()
	s := d.custody.Status()
	return s.By != "" && s.Ports > 0 && s.Fault == ""
}

// openCustody takes up the descriptors that the last weftd had kept, and has ours kept. No other weftd
// answers on the control socket by now, and nothing can be attached yet.
func (d *Daemon) openCustody(ctx context.Context) {
	d.custody = custody.Open(ctx, custody.Options{
		Control: d.cfg.ControlSocket, Owner: d.owner(), Timeout: d.cfg.HolderTimeout, Getenv: os.Getenv,
		Logger: d.log.With("component", "custody"), Left: d.leftHere(),
	})
}

// owner names our state directory to whoever keeps descriptors.
func (d *Daemon) owner() string {
	if d.self.state != "" {
		return d.self.state
	}
	// it cannot be named: its path tells it from another one on this host
	path, err := filepath.Abs(d.cfg.CacheDir)
	if err != nil {
		return ""
	}
	return path
}

// closeCustody leaves what is kept to the next weftd.
func (d *Daemon) closeCustody() {
	if d.custody != nil {
		d.keepNow()
		d.custody.Close()
	}
}

// keepWait bounds how long weftd waits at its end, or at the end of a port, until everything is kept.
const keepWait = 10 * time.Second

// keepNow returns when whoever keeps descriptors has everything, or does not answer.
func (d *Daemon) keepNow() {
	ctx, cancel := context.WithTimeout(context.Background(), keepWait)
	defer cancel()
	_ = d.custody.Wait(ctx, "") // the status says it
}

// custodyStatus returns nil while there is nothing to keep.
func (d *Daemon) custodyStatus() *control.Custody {
	if d.custody == nil {
		return nil
	}
	s := d.custody.Status()
	if s.By == "" {
		s.Ports, s.PortDescriptors = 0, 0
	}
	if s.Items+s.Ports == 0 && s.Fault == "" {
		return nil
	}
	return &s
}
