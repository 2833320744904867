package daemon

import (
	"fmt"
	"net"
	"os"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
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
		Binary: s.Binary, FromVersion: s.From, ToVersion: d.process.version, FromPID: os.Getpid(), PID: os.Getpid(),
	}}
	if u.Fault != "" {
		u.Fault = fmt.Sprintf("%s failed, and %s goes on: %s", s.Binary, d.process.version, u.Fault)
		d.log.Error("the upgrade failed, and this weftd goes on", "binary", s.Binary, "reason", u.Fault)
	}
	d.setUpgrade(u)
	return nil
}

// leftHere is what custody takes up, nil after an ordinary start.
func (d *Daemon) leftHere() *custody.Left {
	if d.upgrades.arrived == nil {
		return nil
	}
	left := d.upgrades.arrived.Kept
	d.upgrades.arrived.Kept = custody.Left{}
	return &left
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

// arrivedNow is called once a set is in force, or at once after a program that served no network: what the
// program before left is not needed any more.
func (d *Daemon) arrivedNow() {
	d.upgrades.arrival.Settle()
	if d.upgrades.carrying.isSet() {
		return
	}
	defer d.upgrades.carrying.set()
	d.custody.Begin() // which may take seconds, for which packets do not wait
	if d.upgrades.arrived == nil {
		return
	}
	now, s := custody.SinceBoot(), d.upgrades.arrived
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
