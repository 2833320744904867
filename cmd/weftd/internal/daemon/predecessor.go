package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/weftd/internal/handover"
	"weft/routing"
)

// predecessor is the weftd whose place this one takes, and that serves until this one is ready.
type predecessor struct {
	conn *handover.Conn
	// estate is what it gave; each part is taken by whoever needs it.
	estate *handover.Estate
	// words are what it says; closed when it is gone.
	words chan handover.Message
}

// These bound how long a new weftd waits for what an old one gives, for its word once everything is ready, for its farewell, and for the end of one that
// has died.
const (
	giveTime     = 10 * time.Second
	yoursTime    = 40 * time.Second
	farewellTime = 5 * time.Second
	dyingTime    = 5 * time.Second
)

// pausable is a member that another process of this node may take the place of.
type pausable interface {
	Pause(ctx context.Context) error
	Resume()
}

// seekPredecessor asks the weftd that answers on our control socket, if one does, to let us take its place. Without one, or with one
// that says no, everything is ours at once; whether that one is in the way is found out as ever.
func (d *Daemon) seekPredecessor(ctx context.Context) {
	if d.cfg.ControlSocket != "" && d.cfg.HandOver == "auto" && d.state != "" {
		err := d.askPredecessor(ctx)
		// One that ended before it had given everything is about to let go of its sockets: until then it seems to be in the way.
		for end := time.Now().Add(dyingTime); errors.Is(err, handover.ErrGone) && time.Now().Before(end) && pause(ctx, dyingTime/100); {
			if again := d.askPredecessor(ctx); again == nil || errors.Is(again, control.ErrNoDaemon) || errors.Is(again, control.ErrRefused) {
				err = again
			}
		}
		if err == nil {
			return
		}
		if !errors.Is(err, control.ErrNoDaemon) {
			d.log.Info("the weftd that runs does not hand over to this one", "reason", err)
			d.unyielding = err
		}
	}
	d.ours.set()
	d.alone.set()
}

func (d *Daemon) askPredecessor(ctx context.Context) error {
	u, err := control.AskHandOver(ctx, d.cfg.ControlSocket, control.HandOverRequest{
		Protocol: handover.Version, Version: d.version, PID: os.Getpid(), State: d.state, Netns: ownNetns(),
	})
	if err != nil {
		return err
	}
	p := &predecessor{conn: handover.NewConn(u), words: make(chan handover.Message, 4)}
	handover.At("new-asked")
	if p.estate, err = p.conn.Take(time.Now().Add(giveTime)); err != nil {
		p.conn.Close()
		return err
	}
	handover.At("new-given")
	for name, fd := range p.estate.Claims {
		err = errors.Join(err, d.claim.Inherit(name, fd))
	}
	clear(p.estate.Claims)
	d.before = p
	d.systemd.Mute()
	d.log.Info("taking the place of the weftd that runs, which serves until this one is ready", "items", len(p.estate.Items))
	return err
}

// listener takes what the predecessor listened on, -1 for nothing.
func (p *predecessor) listener(name string) int {
	if p == nil {
		return -1
	}
	fd, ok := p.estate.Listeners[name]
	if !ok {
		return -1
	}
	delete(p.estate.Listeners, name)
	return fd
}

// inherited is what there is for custody, nil without a predecessor.
func (p *predecessor) inherited() *custody.Inherited {
	if p == nil {
		return nil
	}
	h := &custody.Inherited{Items: p.estate.Items, Stored: p.estate.Stored}
	p.estate.Items, p.estate.Stored = nil, custody.Stored{}
	return h
}

// hear listens to the predecessor until that is gone. An error says that it goes on, or that it cannot be understood, so that this process has to end.
func (d *Daemon) hear(ctx context.Context) error {
	p := d.before
	if p == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, p.conn.Interrupt)
	defer stop()
	for {
		m, err := p.conn.Receive(time.Time{})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, handover.ErrGone): // which whoever waits for its words finds out
			close(p.words)
			d.alone.set()
			return nil
		case err != nil:
			return err
		case m.Word == handover.Back:
			return &handover.BackError{Why: m.Name}
		}
		select {
		case p.words <- m:
		default:
			return fmt.Errorf("hand-over: the other weftd says %q, and nobody waits for that", m.Word)
		}
	}
}

// word waits for the predecessor's next word, which has to be w. gone says that there will be none, since it has ended.
func (p *predecessor) word(ctx context.Context, w handover.Word, patience time.Duration) (m handover.Message, gone bool, err error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case m, ok := <-p.words:
		if ok && m.Word != w {
			err = fmt.Errorf("hand-over: the other weftd says %q, and not %q", m.Word, w)
		}
		return m, !ok, err
	case <-t.C:
		return m, false, fmt.Errorf("hand-over: the other weftd does not answer, so that nobody knows whether it serves: see its log (pid in weft status), and restart it")
	case <-ctx.Done():
		return m, false, context.Cause(ctx)
	}
}

var errLate = errors.New("hand-over: this process was kept from running for so long that the other weftd goes on")

// left returns nil once the predecessor has ended without having said that it goes on. This process was late, so that it usually does.
func (p *predecessor) left(ctx context.Context) error {
	if _, gone, err := p.word(ctx, handover.Bye, farewellTime); gone || ctx.Err() != nil {
		return err
	}
	return errLate
}

// halting is how g's backend is told to change nothing, and to go on: the other process may have put its own back meanwhile.
func (d *Daemon) halting(g *generation) (pause, resume func()) {
	b, ok := g.backend.(routing.Pausable)
	if !ok { // the kernel moves the packets, and is told the same by both
		return func() {}, func() {}
	}
	return b.Pause, func() {
		if _, ok := b.(routing.Transferable); ok {
			d.learnFlows(g) // those of until now
		}
		b.Resume()
	}
}

// takeOver makes everything ours once g is in place, if there is a predecessor: from its word on it reads and writes nothing. An
// error means that this process has to end, and that it goes on.
func (d *Daemon) takeOver(ctx context.Context, g *generation) error {
	if d.ours.isSet() {
		return nil
	}
	p := d.before
	pause, resume := d.halting(g)
	handover.At("new-prepared")
	gone := p.conn.Send(handover.Message{Word: handover.Ready}) != nil
	handover.At("new-ready")
	if !gone {
		yours, ended, err := p.word(ctx, handover.Yours, yoursTime)
		if err != nil {
			return err
		}
		handover.At("new-yours")
		if gone = ended; !gone && handover.Over(yours) {
			if err := p.left(ctx); err != nil {
				return err
			}
			gone = true
		}
		resume()
		if !gone && handover.Over(yours) {
			pause()
			if err := p.left(ctx); err != nil {
				return err
			}
			gone = true
			resume()
		}
	} else {
		resume()
	}
	handover.At("new-reads")
	if m, ok := g.member.(pausable); ok {
		m.Resume()
	}
	// Until the old one says bye it may take everything back, and would know of no pod that came or went here.
	d.changing.Lock()
	held := true
	release := func() {
		if held {
			held = false
			d.changing.Unlock()
		}
	}
	defer release()
	d.ours.set()
	if !gone {
		gone = p.conn.SendFlowing(handover.Report{Version: d.version, Ports: d.inherits, Pods: len(d.pods.List().Pods)}) != nil
	}
	handover.At("new-flowing")
	if !gone {
		_, ended, err := p.word(ctx, handover.Bye, farewellTime)
		if ctx.Err() != nil { // it goes on, or this one is to end
			pause()
			return context.Cause(ctx)
		}
		gone = ended || err != nil
	}
	release()
	d.before.estate.Close() // what nobody wanted
	switch {
	case gone:
		d.log.Warn("the weftd before this one ended while it handed over: going on with what it gave")
	default:
		d.log.Info("this weftd has taken the place of the one before", "ports", d.inherits)
	}
	d.systemd.Unmute()
	if err := d.custody.Begin(ctx); err != nil {
		d.log.Warn("not everything is kept for the next weftd; it is tried again", "reason", err)
	}
	handover.At("new-alone")
	return nil
}

// when runs f once l is set.
func when(l latch, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-l.done:
			return f(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// duplicate returns a duplicate of a listener's descriptor.
func duplicate(l any) (int, error) {
	c, ok := l.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a listener of type %T", l)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if cerr := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) }); cerr != nil {
		return -1, cerr
	}
	return fd, err
}

// binary is the path by which this program was started, arg0, which may be a link that leads to another file by the time of an upgrade. If that is not
// known, it is the path of the file that this process runs, or that is there in its place.
func binary(arg0 string) string {
	own, err := os.Executable()
	if err != nil {
		return ""
	}
	own = strings.TrimSuffix(own, " (deleted)")
	path, err := exec.LookPath(arg0) // one with a slash is what it is
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil || strings.HasPrefix(path, "/proc/") { // which names a process, and not a file
		return own
	}
	its, err := os.Stat(path)
	runs, err2 := os.Stat("/proc/self/exe")
	if err != nil || err2 != nil || !os.SameFile(its, runs) {
		return own
	}
	return path
}
