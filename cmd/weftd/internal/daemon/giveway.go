package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/rights"
	"weft/cmd/weftd/internal/handover"
	"weft/routing"
)

// giving is a hand-over as the old weftd sees it. changing is held meanwhile: pods neither come nor go.
type giving struct {
	d     *Daemon
	conn  *handover.Conn
	other control.Caller
	child bool // this process has started the other one

	g      *generation
	plane  routing.Transferable // nil where the kernel carries packets
	resume []func()             // what undoes the pauses, the last first
	until  time.Time            // when the other one does not begin to read any more; zero if it has not been told to
}

// errAsked is of a weftd that is asked to stop while it hands over.
var errAsked = errors.New("this weftd was asked to stop")

// run lets the other process take this one's place. With an error this one goes on as if nothing had been, or it ends.
func (w *giving) run(ctx context.Context) (o outcome) {
	d := w.d
	o.pid = w.other.PID
	handover.At("old-asked")
	stop := context.AfterFunc(ctx, w.conn.Interrupt)
	defer stop()
	back := func(why error) outcome {
		o.err = w.back(ctx, why)
		return o
	}
	if w.g, _ = d.current(); !w.serves() {
		return back(errors.New("this weftd carries nothing just now"))
	}
	w.plane, _ = w.g.backend.(routing.Transferable)
	// From now on the ports and sockets are somebody else's too; before it is looked whether this one is to stop, since who stops later leaves
	// everything.
	d.given.Store(true)
	if ctx.Err() != nil {
		d.given.Store(false)
		return back(errAsked)
	}
	estate, err := d.estate()
	if err != nil {
		d.given.Store(false)
		return back(err)
	}
	err = w.conn.Give(estate)
	estate.Close()
	if err != nil {
		return back(err)
	}
	handover.At("old-given")
	if _, err := w.conn.Expect(handover.Ready, time.Now().Add(prepareTime)); err != nil {
		return back(fmt.Errorf("it did not get ready: %w", err))
	}
	handover.At("old-ready")
	if !w.serves() {
		return back(errors.New("another network configuration was taken up meanwhile"))
	}
	if err := w.pause(ctx); err != nil {
		return back(err)
	}
	handover.At("old-paused")
	began := time.Now()
	flowing, err := w.yield()
	o.pause = time.Since(began)
	if err != nil {
		return back(fmt.Errorf("it did not begin to carry packets: %w", err))
	}
	handover.At("old-flowing")
	o.report = handover.ReportOf(flowing)
	if err := w.tried(); err != nil {
		return back(fmt.Errorf("it ended with the first packets: %w", err))
	}
	if w.plane != nil {
		w.plane.Abandon()
	}
	if d.followed() { // before the other one has something to say to the service manager, which would not listen to it
		d.systemd.Successor(w.other.PID)
	}
	d.closeCustody()                                      // who keeps descriptors obeys the other one from then on: a change here that comes late would take its holder back
	_ = w.conn.Send(handover.Message{Word: handover.Bye}) // if it is gone by now, the supervisor starts another
	handover.At("old-bye")
	return o
}

// awaitHandOver returns when no hand-over is under way.
func (d *Daemon) awaitHandOver() {
	d.changing.RLock()
	defer d.changing.RUnlock()
}

// serves reports whether the generation whose ports were given is still the one that serves.
func (w *giving) serves() bool {
	now, _ := w.d.current()
	return w.g != nil && now == w.g && !w.g.over.Load()
}

// pause has this process read and write nothing more.
func (w *giving) pause(ctx context.Context) error {
	if m, ok := w.g.member.(pausable); ok {
		patient, cancel := context.WithTimeout(ctx, pauseTime)
		defer cancel()
		if err := m.Pause(patient); err != nil {
			return fmt.Errorf("what was under way in the %s did not end: %w", w.d.source.name(), err)
		}
		w.resume = append(w.resume, m.Resume)
	}
	w.d.pods.Leave(true)
	w.resume = append(w.resume, func() { w.d.pods.Leave(false) })
	if b, ok := w.g.backend.(routing.Pausable); ok {
		b.Pause()
		w.resume = append(w.resume, b.Resume)
	}
	if !w.serves() { // what was given is not what is wanted now
		return errors.New("another network configuration was taken up meanwhile")
	}
	return nil
}

// yield says that the other one may read now, and waits until it does.
func (w *giving) yield() (handover.Message, error) {
	flow := handover.Flow(flowTime)
	w.until = time.Now().Add(flow + lateTime)
	if err := w.conn.SendYours(flow); err != nil {
		return handover.Message{}, err
	}
	handover.At("old-yours")
	m, err := w.conn.Expect(handover.Flowing, w.until)
	if isLate(err) {
		return w.conn.Expect(handover.Flowing, time.Now().Add(lateTime/10)) // this process itself may have been kept from running
	}
	return m, err
}

// tried waits for a moment whether the other one, which reads by now, ends of what it reads. Anything else that it does not do or say is
// no reason to take everything back, since it may not be possible to have it read nothing.
func (w *giving) tried() error {
	m, err := w.conn.Receive(time.Now().Add(handover.Trial(trialTime)))
	if err == nil || !errors.Is(err, handover.ErrGone) {
		rights.Close(m.FDs)
		return nil
	}
	return err
}

func isLate(err error) bool {
	late := net.Error(nil)
	return errors.As(err, &late) && late.Timeout()
}

// back ends a hand-over because of why. This process goes on once it is certain that the other one reads nothing, and says so. If it was
// asked to stop meanwhile, it leaves everything as it is: the other one goes on with what it has, but for one that this process has started,
// which whoever stops this one means as well.
func (w *giving) back(ctx context.Context, why error) error {
	asked := ctx.Err() != nil
	if asked && !w.child {
		w.abandon()
		return fmt.Errorf("%w: %w", errAsked, why)
	}
	// One that has closed the connection reads nothing any more.
	if w.d.given.Load() && !w.end() && !errors.Is(why, handover.ErrGone) && !w.until.IsZero() {
		time.Sleep(time.Until(w.until)) // after that time it does not begin to read
	}
	if asked {
		w.abandon()
		return fmt.Errorf("%w: %w", errAsked, why)
	}
	for i := len(w.resume) - 1; i >= 0; i-- {
		w.resume[i]()
	}
	w.d.given.Store(false)
	_ = w.conn.Send(handover.Message{Word: handover.Back, Name: why.Error()}) // it may be gone
	return why
}

// abandon leaves the ports as they are, for whoever has them.
func (w *giving) abandon() {
	if w.plane != nil && w.d.given.Load() {
		w.plane.Abandon()
	}
}

// shared reports whether another process has the ports and sockets of this one too, so that they are to be left as they are.
func (d *Daemon) shared() bool { return d.given.Load() || d.before != nil && !d.alone.isSet() }

// end ends the other process, and reports whether that has ended for certain. It cannot be ended from another PID namespace; that it has ended
// can be seen from there.
func (w *giving) end() bool {
	if w.other.FD < 0 {
		return false
	}
	patience := killTime
	if unix.PidfdSendSignal(w.other.FD, unix.SIGKILL, nil, 0) != nil {
		patience = 0
	}
	return hasEnded(w.other.FD, patience)
}

// hasEnded waits until the process of pidfd has ended, and reports whether it has.
func hasEnded(pidfd int, patience time.Duration) bool {
	for end := time.Now().Add(patience); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) || left == 0 {
			return false
		}
	}
}
