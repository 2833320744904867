package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/weftd/internal/reexec"
)

// takeArrival takes up what the program before left in this process, if there was one.
func (d *Daemon) takeArrival() error {
	if d.arrival == nil {
		return nil
	}
	s, err := d.arrival.State()
	if err != nil {
		return err
	}
	d.arrived = &s
	u := control.Upgrade{ID: s.ID, Fault: d.arrival.Fault(), Upgraded: control.Upgraded{
		Binary: s.Binary, FromVersion: s.From, ToVersion: d.version, FromPID: os.Getpid(), PID: os.Getpid(),
	}}
	if u.Fault != "" {
		u.Fault = fmt.Sprintf("%s failed, and %s goes on: %s", s.Binary, d.version, u.Fault)
		d.log.Error("the upgrade failed, and this weftd goes on", "binary", s.Binary, "reason", u.Fault)
	}
	d.setUpgrade(u)
	return nil
}

// inherited is what custody takes up, nil after an ordinary start.
func (d *Daemon) inherited() *custody.Inherited {
	if d.arrived == nil {
		return nil
	}
	kept := d.arrived.Kept
	d.arrived.Kept = custody.Inherited{}
	return &kept
}

// inheritedOr returns what the program before listened on under that name, else what open opens.
func (d *Daemon) inheritedOr(name string, open func() (net.Listener, error)) (net.Listener, error) {
	if d.arrived != nil {
		if fd, ok := d.arrived.Listeners[name]; ok {
			delete(d.arrived.Listeners, name)
			return control.Adopt(fd)
		}
	}
	return open()
}

// arrivedNow is called once a set is in force: what the program before left is not needed any more.
func (d *Daemon) arrivedNow() {
	d.arrival.Settle()
	if d.carrying.isSet() {
		return
	}
	defer d.carrying.set()
	if d.arrived == nil {
		return
	}
	now, s := reexec.Now(), d.arrived
	s.Close() // what nobody wanted
	u := d.LastUpgrade()
	u.Ports, u.Pods, u.Done = d.inherits, len(d.pods.List().Pods), u.Fault == ""
	u.Took = (now - s.Asked).Milliseconds()
	if s.Paused > 0 {
		u.Pause = (now - s.Paused).Microseconds()
	}
	d.setUpgrade(u)
	if u.Done {
		d.log.Info("this program has taken the place of the one before", "from_version", u.FromVersion,
			"pause", time.Duration(u.Pause)*time.Microsecond, "ports", u.Ports)
	}
}

// afterArrival does what can wait until packets flow: who keeps descriptors is told what has become another since, which
// may take seconds.
func (d *Daemon) afterArrival(ctx context.Context) error {
	select {
	case <-d.carrying.done:
	case <-ctx.Done():
		return nil
	}
	if err := d.custody.Begin(ctx); err != nil {
		d.log.Warn("not everything is kept for the next weftd; it is tried again", "reason", err)
	}
	return nil
}
