package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/safepath"
	"weft/cmd/weftd/internal/reexec"
	"weft/cmd/weftd/internal/rootless"
)

// An upgrade executes another program in this process. Ports' and pods' descriptors stay open, and packets
// wait in their queues until the new program reads them. The TUN's queue is not lengthened for that: the
// kernel takes a device down and up to change it (dev_qdisc_change_tx_queue_len), and drops what is sent
// meanwhile. become is of the program before, takeArrival of the one after.

// swap asks Run, which has main's thread, to execute a program. err hears why it could not.
type swap struct {
	program reexec.Program
	state   reexec.State
	err     chan<- error
}

// upgrades is what an upgrade, or another weftd that takes this one's place, goes by.
type upgrades struct {
	// arrival is what the program before left in this process, and arrived what of it is not taken up yet; nil
	// after an ordinary start. carrying is set once a set is in force.
	arrival  *reexec.Arrival
	arrived  *reexec.State
	carrying latch
	inherits int    // ports of the data plane that were taken up; only live writes it
	binary   string // the path by which a program is executed in this one's place
	swaps    chan swap
	exec     func(reexec.Program, reexec.State) error // Program.Exec

	upgrading sync.Mutex // held by an upgrade
	// held for reading while pods come or go and the key changes, for writing while another program takes this
	// one's place
	changing sync.RWMutex
	left     atomic.Bool // another process has the ports, or is about to
	last     atomic.Pointer[control.Upgrade]

	mu        sync.Mutex              // protects what follows
	listeners map[string]net.Listener // what is served on, by name
}

func newUpgrades(p Program) upgrades {
	return upgrades{
		arrival: p.Arrival, carrying: newLatch(), swaps: make(chan swap), exec: p.Exec, binary: binary(os.Args[0]),
	}
}

// Upgrade implements control.Upgrader.
func (d *Daemon) Upgrade(ctx context.Context, r control.UpgradeRequest) (u control.Upgrade, begin func(),
	err error) {
	refuse := func(format string, a ...any) (control.Upgrade, func(), error) {
		return u, nil, fmt.Errorf("%w: %w", control.ErrRefused, fmt.Errorf(format, a...))
	}
	asked := custody.SinceBoot()
	if !d.upgrades.upgrading.TryLock() {
		return refuse("an upgrade is under way already")
	}
	defer func() {
		if begin == nil {
			d.upgrades.upgrading.Unlock()
		}
	}()
	path := cmp.Or(r.Binary, d.upgrades.binary)
	real, err := mayRun(path)
	if err != nil {
		return refuse("%w", err)
	}
	p := reexec.Program{Path: real, Name: path, Args: os.Args[1:]} // a link may lead elsewhere by the next time
	p.Env, p.Namespace = rootless.Again(d.cfg.Rootless.Place)
	version, err := reexec.Ask(ctx, p)
	if err != nil {
		d.log.Error("the upgrade failed, and this weftd goes on", "binary", path, "reason", err)
		return refuse("%s is not executed in weftd's place: %w", path, err)
	}
	u = control.Upgrade{ID: strconv.FormatInt(int64(asked), 36), Upgraded: control.Upgraded{
		Binary: path, FromVersion: d.process.version, ToVersion: version, FromPID: os.Getpid(), PID: os.Getpid(),
	}}
	d.setUpgrade(u)
	return u, func() {
		go func() { // ends with this program, or when the upgrade has failed
			defer d.upgrades.upgrading.Unlock()
			u.Fault = d.become(p, reexec.State{ID: u.ID, From: d.process.version, Binary: path, Asked: asked}).Error()
			d.log.Error("the upgrade failed, and this weftd goes on", "binary", path, "reason", u.Fault)
			d.setUpgrade(u)
		}()
	}, nil
}

// LastUpgrade implements control.Upgrader.
func (d *Daemon) LastUpgrade() control.Upgrade {
	if u := d.upgrades.last.Load(); u != nil {
		return *u
	}
	return control.Upgrade{}
}

func (d *Daemon) setUpgrade(u control.Upgrade) { d.upgrades.last.Store(&u) }

// become executes p in this process. It returns only if that fails, and this program goes on as before.
func (d *Daemon) become(p reexec.Program, s reexec.State) error {
	d.log.Info("executing another program in this weftd's place", "binary", s.Binary)
	d.upgrades.changing.Lock() // an attach ends first; the next ones are told to try again
	defer d.upgrades.changing.Unlock()
	d.keepNow() // it may take seconds, while packets flow
	g, _ := d.current()
	s.Idle = g == nil
	if g != nil && g.plane != nil {
		s.Paused = custody.SinceBoot()
		g.plane.Pause()
		defer g.plane.Resume()
	}
	d.keepNow()
	var err error
	if s.Kept, err = d.custody.Leave(); err != nil {
		return err
	}
	defer s.Close()
	s.Listeners = d.duplicateListeners()
	done := make(chan error, 1)
	select {
	case d.upgrades.swaps <- swap{p, s, done}:
		return <-done
	case <-d.process.ctx.Done():
		return errors.New("this weftd was asked to stop")
	}
}

// duplicateListeners returns duplicates of what is served on, by name. One that cannot be had is opened anew.
func (d *Daemon) duplicateListeners() map[string]int {
	d.upgrades.mu.Lock()
	defer d.upgrades.mu.Unlock()
	all := map[string]int{}
	for name, l := range d.upgrades.listeners {
		if fd, err := duplicate(l); err == nil {
			all[name] = fd
		}
	}
	return all
}

func duplicate(l net.Listener) (fd int, err error) {
	c, ok := l.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a listener of type %T", l)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	bad := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(bad, err)
}

// mayRun returns the file that path leads to, or why it is not executed with weftd's rights: others than root
// and weftd's own user can have put it there.
func mayRun(path string) (real string, err error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is no absolute path of a program: name one with --binary", path)
	}
	real, err = safepath.Check(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not there: install the new weftd at that path, or name another with --binary",
			path)
	}
	if err != nil {
		return "", fmt.Errorf("weftd executes only what nobody but root and its own user can replace: %w", err)
	}
	info, err := os.Stat(real)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is no program: it has to be a file that may be executed (chmod 755)", path)
	}
	return real, err
}

// binary is the path by which this program was started, arg0, which may be a link that leads to another file
// by the time of an upgrade. If that is not known, it is the path of the file that this process runs, or that
// is there in its place.
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

// Yielded is the error with which Run ends when another weftd has asked for this one's place. Nothing is
// undone.
type Yielded struct {
	// Left is what is to be kept for the other one; its descriptors are the caller's.
	Left custody.Left
	// Owner and Timeout are what a holder is told.
	Owner   string
	Timeout time.Duration
	// Answer tells the other one that it may begin.
	Answer func()
}

func (*Yielded) Error() string { return "another weftd takes this one's place" }

// MayYield implements control.Upgrader.
func (d *Daemon) MayYield(r control.YieldRequest) error {
	switch {
	case r.State == "" || r.State != d.self.state:
		return fmt.Errorf("%w: it has another state directory (--cache-dir), so that it is another node",
			control.ErrRefused)
	case r.Netns != ownNetns():
		return fmt.Errorf("%w: it is in another network namespace (hostNetwork in Kubernetes, --network=host "+
			"with Docker)", control.ErrRefused)
	}
	return nil
}

// Yield implements control.Upgrader.
func (d *Daemon) Yield(answer func()) {
	d.log.Info("stopping: another weftd takes this one's place")
	d.upgrades.upgrading.Lock() // never unlocked: this process does nothing from now on
	d.upgrades.changing.Lock()
	if g, _ := d.current(); g != nil {
		g.backend.Pause()
	}
	d.keepNow()
	left, err := d.custody.Leave()
	if err != nil {
		d.log.Warn("the other weftd makes its ports anew", "reason", err)
	}
	d.upgrades.left.Store(true)
	d.process.end(&Yielded{Left: left, Owner: d.owner(), Timeout: d.cfg.HolderTimeout, Answer: answer})
}

// askYield has a weftd that answers on our control socket stop.
func (d *Daemon) askYield(ctx context.Context) error {
	err := control.AskYield(ctx, d.cfg.ControlSocket,
		control.YieldRequest{State: d.self.state, Netns: ownNetns()})
	switch {
	case errors.Is(err, control.ErrNoDaemon):
		return nil
	case err != nil:
		return fmt.Errorf("the weftd that runs does not give way: %w", err)
	}
	d.log.Info("the weftd before this one has stopped for it")
	return nil
}

// ownNetns is the number of this process's network namespace, 0 if it cannot be had.
func ownNetns() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return 0
	}
	return st.Ino
}

// mayChange returns an error while another program takes this one's place. The caller calls done.
func (d *Daemon) mayChange() (done func(), err error) {
	if !d.upgrades.changing.TryRLock() {
		return nil, control.ErrReplaced
	}
	return d.upgrades.changing.RUnlock, nil
}

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
