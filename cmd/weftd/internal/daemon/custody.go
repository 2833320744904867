package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
)

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
