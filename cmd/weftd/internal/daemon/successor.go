package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/weftd/internal/handover"
)

// HandedOver is the error with which Run ends when another process has taken this one's place. Nothing of what was handed over is
// undone.
type HandedOver struct {
	// PID is the other process, 0 if it is not visible here. Child says that this process started it.
	PID   int
	Child bool
	// Minder, if not nil, is where the child will write which process takes its place: this one has to wait for them, since whoever
	// started it waits for this one.
	Minder *os.File
	// Stay says that whoever started this process would start it again if it ended, as kubelet and Docker do, and the next one would take
	// the other's place: it has to wait until it is asked to stop.
	Stay bool
}

// GivesWay has the control socket end as a server that another one succeeds.
func (h *HandedOver) GivesWay() bool { return true }

func (h *HandedOver) Error() string {
	return fmt.Sprintf("another weftd (pid %d) has taken over", h.PID)
}

// These bound how long an old weftd waits: for a new one to have everything in place; for what is under way in the store; and for it to
// read, which that does within flowTime or not at all. lateTime is added for what was on its way.
const (
	prepareTime = 30 * time.Second
	pauseTime   = 12 * time.Second
	flowTime    = 2 * time.Second
	lateTime    = 500 * time.Millisecond
	killTime    = 2 * time.Second
	// trialTime is how long it can still take everything back when the new one has packets: one that dies of the first ones costs a pause.
	trialTime = 300 * time.Millisecond
)

// outcome is how a hand-over went.
type outcome struct {
	pid    int
	report handover.Report
	pause  time.Duration
	err    error
}

// MayHandOver implements control.Upgrader.
func (d *Daemon) MayHandOver(r control.HandOverRequest) error {
	refuse := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", control.ErrRefused, fmt.Sprintf(format, a...))
	}
	switch g, why := d.current(); {
	case r.Protocol != handover.Version:
		return refuse("this weftd is %s and hands over by protocol %d, the other is %s and takes over by protocol %d: stop this one first, which is a restart (systemctl restart weftd)", d.version, handover.Version, r.Version, r.Protocol)
	case r.State == "" || r.State != d.state:
		return refuse("it has another state directory (--cache-dir), so that it is another node")
	case r.Netns != ownNetns():
		return refuse("it is in another network namespace (hostNetwork in Kubernetes, --network=host with Docker)")
	case d.cfg.HandOver != "auto":
		return refuse("this weftd was started with --hand-over=%s", d.cfg.HandOver)
	case !d.ours.isSet() || !d.alone.isSet():
		return refuse("this weftd is just taking another one's place itself: try again in a moment")
	case g == nil:
		return refuse("this weftd carries nothing yet: %s", why)
	}
	return nil
}

// HandOver implements control.Upgrader.
func (d *Daemon) HandOver(r control.HandOverRequest, caller control.Caller, u *net.UnixConn) {
	conn := handover.NewConn(u)
	if !d.handing.TryLock() {
		_ = conn.Send(handover.Message{Word: handover.Back, Name: "another one is taking its place already"})
		conn.Close()
		return
	}
	defer d.handing.Unlock()
	d.log.Info("another weftd wants to take this one's place", "pid", caller.PID, "version", r.Version)
	d.changing.Lock() // who waits meanwhile goes on with this process as it is, or hears that it is replaced
	defer d.changing.Unlock()
	d.mu.Lock()
	asked := d.upgrading
	d.mu.Unlock()
	child := asked != nil && asked.pid == caller.PID && caller.PID != 0
	w := &giving{d: d, conn: conn, other: caller, child: child}
	o := w.run(d.running)
	switch {
	case errors.Is(o.err, errAsked):
		d.mu.Lock()
		d.left = conn // closed when this process has nothing any more: the other one takes that for its end
		d.mu.Unlock()
		d.log.Info("this weftd was asked to stop while it handed over", "to_version", r.Version, "pid", caller.PID, "the_other_goes_on", !child)
	case o.err != nil:
		conn.Close()
		d.log.Warn("the hand-over failed, and this weftd goes on", "to_version", r.Version, "pid", caller.PID, "reason", o.err)
	default:
		d.log.Info("handed over", "to_version", o.report.Version, "pid", caller.PID, "pause", o.pause)
	}
	if child {
		asked.outcome <- o // it has room for one
	}
	if o.err == nil {
		over := &HandedOver{PID: caller.PID, Child: child, Stay: d.stays(child, caller.PID)}
		if child {
			over.Minder = asked.minder
			d.tellMinder(caller.PID)
		}
		d.mu.Lock()
		d.left, d.over = conn, over
		d.mu.Unlock()
		d.end(over)
	}
}

// handedOver is what became of this process if another one has taken its place, which a signal that came meanwhile does not change; nil if none has.
func (d *Daemon) handedOver() *HandedOver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// stays reports whether this process, whose place another one has taken, has to wait until it is asked to stop: who started it would start it
// again. A service manager goes on with the process that it is told, unless it cannot be told: one in another PID namespace has no number here.
func (d *Daemon) stays(child bool, pid int) bool {
	switch {
	case child:
		return false
	case d.followed():
		return pid == 0
	}
	return d.minder != nil || os.Getppid() <= 1
}

// leave tells the process that has taken this one's place, or whose place this one was to take, that this one has nothing any more.
func (d *Daemon) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left != nil {
		d.left.Close()
	}
	if d.before != nil {
		d.before.conn.Close()
	}
}

// ownNetns is the number of this process's network namespace, 0 if it cannot be had.
func ownNetns() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return 0
	}
	return st.Ino
}

// estate has duplicates of all that another process needs to go on.
func (d *Daemon) estate() (*handover.Estate, error) {
	d.keeping.wait()
	kept, err := d.custody.Bequeath()
	if err != nil {
		return nil, err
	}
	e := &handover.Estate{Items: kept.Items, Stored: kept.Stored, Listeners: map[string]int{}}
	if e.Claims, err = d.claim.Claims(); err != nil {
		e.Close()
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, l := range d.listeners {
		fd, err := duplicate(l)
		if err != nil {
			continue // the other one opens it anew
		}
		e.Listeners[name] = fd
	}
	return e, nil
}
