package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/weftd/internal/handover"
	"weft/routing"
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
)

// outcome is how a hand-over went.
type outcome struct {
	pid    int
	report handover.Report
	pause  time.Duration
	err    error
}

// MayHandOver implements control.HandOverNode.
func (d *Daemon) MayHandOver(r control.HandOverRequest) error {
	refuse := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", control.ErrRefused, fmt.Sprintf(format, a...))
	}
	switch g, why := d.current(); {
	case r.Protocol != handover.Version:
		return refuse("this weftd is %s and hands over by protocol %d, the other is %s and takes over by protocol %d: stop this one first, which is a restart (systemctl restart weftd)", d.version, handover.Version, r.Version, r.Protocol)
	case r.State == "" || r.State != d.state:
		return refuse("it has another state directory (--cache-dir), so that it is another node")
	case d.cfg.HandOver != "auto":
		return refuse("this weftd was started with --hand-over=%s", d.cfg.HandOver)
	case !d.ours.isSet() || !d.alone.isSet():
		return refuse("this weftd is just taking another one's place itself: try again in a moment")
	case g == nil:
		return refuse("this weftd carries nothing yet: %s", why)
	case g.backend.Status().Path == routing.PathUserspace: // the library gives nothing of its sessions away, and its TUN has one owner
		return refuse("what WireGuard in user space encrypts cannot be handed over: stop this weftd first, which is a restart (systemctl restart weftd)")
	}
	return nil
}

// HandOver implements control.HandOverNode.
func (d *Daemon) HandOver(r control.HandOverRequest, caller int, u *net.UnixConn) {
	conn := handover.NewConn(u)
	if !d.handing.TryLock() {
		_ = conn.Send(handover.Message{Word: handover.Back, Name: "another one is taking its place already"})
		conn.Close()
		return
	}
	defer d.handing.Unlock()
	d.log.Info("another weftd wants to take this one's place", "pid", caller, "version", r.Version)
	d.changing.Lock() // who waits meanwhile goes on with this process as it is, or hears that it is replaced
	defer d.changing.Unlock()
	o := d.giveWay(d.running, r, caller, conn)
	if o.err != nil {
		conn.Close()
		d.log.Warn("the hand-over failed, and this weftd goes on", "to_version", r.Version, "pid", caller, "reason", o.err)
	} else {
		d.log.Info("handed over", "to_version", o.report.Version, "pid", caller, "pause", o.pause)
	}
	d.mu.Lock()
	asked := d.upgrading
	d.mu.Unlock()
	child := asked != nil && asked.pid == caller && caller != 0
	if child {
		asked.outcome <- o // it has room for one
	}
	if o.err == nil {
		over := &HandedOver{PID: caller, Child: child, Stay: !child && !d.followed() && (d.minder != nil || os.Getppid() <= 1)}
		d.mu.Lock()
		d.left = conn
		d.mu.Unlock()
		if child {
			over.Minder = asked.minder
			d.tellMinder(caller)
		}
		d.end(over)
	}
}

// leave tells the process that has taken this one's place, if there is one, that this one has nothing any more.
func (d *Daemon) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left != nil {
		d.left.Close()
	}
}

// giveWay lets the other process take this one's place. With an error this one goes on as if nothing had been. changing is held: pods neither
// come nor go.
func (d *Daemon) giveWay(ctx context.Context, r control.HandOverRequest, caller int, conn *handover.Conn) (o outcome) {
	o.pid = caller
	handover.At("old-asked")
	other := -1
	if caller != 0 {
		if fd, err := unix.PidfdOpen(caller, 0); err == nil {
			other = fd
			defer func() { _ = unix.Close(other) }() // nothing was written
		}
	}
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	back := func(err error) outcome {
		o.err = err
		_ = conn.Send(handover.Message{Word: handover.Back, Name: err.Error()}) // it may be gone
		return o
	}
	estate, err := d.estate()
	if err != nil {
		return back(err)
	}
	err = conn.Give(estate)
	estate.Close()
	if err != nil {
		return back(err)
	}
	handover.At("old-given")
	g, _ := d.current()
	if _, err := conn.Expect(handover.Ready, time.Now().Add(prepareTime)); err != nil {
		d.kill(conn, other)
		return back(fmt.Errorf("it did not get ready: %w", err))
	}
	handover.At("old-ready")
	if now, _ := d.current(); now != g || g == nil {
		return back(errors.New("another network configuration was taken up meanwhile"))
	}
	patient, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	if m, ok := g.member.(pausable); ok {
		if err := m.Pause(patient); err != nil {
			return back(fmt.Errorf("what was under way in the %s did not end: %w", d.source.name(), err))
		}
		defer func() {
			if o.err != nil {
				m.Resume()
			}
		}()
	}
	began := time.Now()
	plane, _ := g.backend.(routing.Transferable)
	if plane != nil {
		plane.Pause()
	}
	handover.At("old-paused")
	flowing, err := d.yield(conn)
	o.pause = time.Since(began)
	if err != nil {
		d.kill(conn, other)
		if left := flowTime + lateTime - time.Since(began); left > 0 && other < 0 {
			time.Sleep(left) // it cannot be ended from here: after that time it does not begin to read
		}
		if plane != nil {
			plane.Resume()
		}
		return back(fmt.Errorf("it did not begin to carry packets: %w", err))
	}
	handover.At("old-flowing")
	o.report = handover.ReportOf(flowing)
	if plane != nil {
		plane.Abandon()
	}
	d.keepSockets()
	if d.followed() { // before the other one has something to say to the service manager, which would not listen to it
		d.systemd.Successor(caller)
	}
	_ = conn.Send(handover.Message{Word: handover.Bye}) // if it is gone by now, the supervisor starts another
	handover.At("old-bye")
	return o
}

// yield says that the other one may read now, and waits until it does.
func (d *Daemon) yield(conn *handover.Conn) (handover.Message, error) {
	if err := conn.SendYours(flowTime); err != nil {
		return handover.Message{}, err
	}
	handover.At("old-yours")
	m, err := conn.Expect(handover.Flowing, time.Now().Add(flowTime+lateTime))
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		return conn.Expect(handover.Flowing, time.Now().Add(lateTime/10)) // this process itself may have been kept from running
	}
	return m, err
}

// kill ends the other process, where it can be named, and returns when that is so.
func (d *Daemon) kill(conn *handover.Conn, pidfd int) {
	if pidfd < 0 || unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) != nil {
		return
	}
	end := time.Now().Add(killTime)
	for time.Now().Before(end) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(killTime.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// estate has duplicates of all that another process needs to go on.
func (d *Daemon) estate() (*handover.Estate, error) {
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

// keepSockets has the files of sockets stay when they are closed.
func (d *Daemon) keepSockets() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.listeners {
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
	}
}
