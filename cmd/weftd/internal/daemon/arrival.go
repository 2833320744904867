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
	if d.upgrades.arrival == nil {
		return nil
	}
	s, err := d.upgrades.arrival.State()
	if err != nil {
		return err
	}
	d.upgrades.arrived = &s
	u := control.Upgrade{ID: s.ID, Fault: d.upgrades.arrival.Fault(), Upgraded: control.Upgraded{
		Binary: s.Binary, FromVersion: s.From, ToVersion: d.self.version, FromPID: os.Getpid(), PID: os.Getpid(),
	}}
	if u.Fault != "" {
		u.Fault = fmt.Sprintf("%s failed, and %s goes on: %s", s.Binary, d.self.version, u.Fault)
		d.log.Error("the upgrade failed, and this weftd goes on", "binary", s.Binary, "reason", u.Fault)
	}
	d.setUpgrade(u)
	return nil
}

// inherited is what custody takes up, nil after an ordinary start.
func (d *Daemon) inherited() *custody.Inherited {
	if d.upgrades.arrived == nil {
		return nil
	}
	kept := d.upgrades.arrived.Kept
	d.upgrades.arrived.Kept = custody.Inherited{}
	return &kept
}

// inheritedOr returns what the program before listened on under that name, else what open opens.
func (d *Daemon) inheritedOr(name string, open func() (net.Listener, error)) (net.Listener, error) {
	if d.upgrades.arrived != nil {
		if fd, ok := d.upgrades.arrived.Listeners[name]; ok {
			delete(d.upgrades.arrived.Listeners, name)
			return control.Adopt(fd)
		}
	}
	return open()
}

// arrivedNow is called once a set is in force: what the program before left is not needed any more.
func (d *Daemon) arrivedNow() {
	d.upgrades.arrival.Settle()
	if d.upgrades.carrying.isSet() {
		return
	}
	defer d.upgrades.carrying.set()
	if d.upgrades.arrived == nil {
		return
	}
	now, s := reexec.Now(), d.upgrades.arrived
	s.Close() // what nobody wanted
	u := d.LastUpgrade()
	u.Ports, u.Pods, u.Done = d.upgrades.inherits, len(d.pods.List().Pods), u.Fault == ""
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
	case <-d.upgrades.carrying.done:
	case <-ctx.Done():
		return nil
	}
	if err := d.custody.Begin(ctx); err != nil {
		d.log.Warn("not everything is kept for the next weftd; it is tried again", "reason", err)
	}
	return nil
}
