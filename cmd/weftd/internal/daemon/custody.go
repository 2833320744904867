package daemon

import (
	"context"
	"os"
	"path/filepath"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
)

// openCustody takes up the descriptors that the last weftd had kept, and sees to it that ours are kept. No other weftd answers on
// the control socket by now, and nothing can be attached yet.
func (d *Daemon) openCustody(ctx context.Context, do func(func(context.Context) error)) {
	d.custody = custody.Open(ctx, custody.Options{
		Control: d.cfg.ControlSocket, Owner: d.owner(), Timeout: d.cfg.HolderTimeout, Getenv: os.Getenv,
		Logger: d.log.With("component", "custody"), Inherited: d.inherited(),
	})
	do(d.custody.Run)
}

// owner names our state directory to whoever keeps descriptors.
func (d *Daemon) owner() string {
	if d.self.state != "" {
		return d.self.state
	}
	path, err := filepath.Abs(d.cfg.CacheDir) // it cannot be named: its path tells it from another one on this host
	if err != nil {
		return ""
	}
	return path[max(0, len(path)-custody.MaxName):]
}

// closeCustody leaves what is kept to the next weftd.
func (d *Daemon) closeCustody() {
	if d.custody != nil {
		d.keeping.wait()
		d.custody.Close()
	}
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
	return &control.Custody{Ports: s.Ports, PortDescriptors: s.PortDescriptors, By: s.By, PID: s.PID, Items: s.Items, Descriptors: s.Descriptors, Discarded: s.Discarded, Fault: s.Fault}
}
