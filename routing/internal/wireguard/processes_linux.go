package wireguard

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing/event"
)

// ProcessOptions say how devices' processes are started and kept.
type ProcessOptions struct {
	// Start starts a program that calls Serve for the device of that name, with the line and the TUN as descriptors 3 and 4. It borrows both, and
	// returns a pidfd, which is the Processes', or -1.
	Start func(name string, line, tun *os.File) (process int, err error)
	// Keep has the line kept for the next weftd, also one that was Kept and is of use, and Forget ends that. Keep borrows the descriptors.
	Keep   func(name string, l Line)
	Forget func(name string)
	// Kept are the lines that an earlier weftd left, or one that runs gave, by the devices' names. They are the Processes' from then on.
	Kept map[string]Line
	// Settled reports whether no other weftd has these processes too.
	Settled func() bool
	// Version is this program's.
	Version string
	Logger  *slog.Logger
}

// Line is what weftd has of a device's process: the end of a socket pair, and the process's descriptor (pidfd_open(2)), or -1.
type Line struct{ FD, Process int }

func (l Line) close() {
	closeAll([]int{l.FD})
	if l.Process >= 0 {
		closeAll([]int{l.Process})
	}
}

// Processes are the devices that are processes of their own. They outlive whoever has them, as long as somebody keeps their lines. It is safe
// for concurrent use.
type Processes struct {
	o ProcessOptions

	mu    sync.Mutex // protects what follows, and is held while one is started
	lines map[string]Line
	began map[string]time.Time // when each was started
	soon  map[string]int       // how many in a row ended soon after that

	ended atomic.Uint64
}

// NewProcesses takes over what is kept.
func NewProcesses(o ProcessOptions) *Processes {
	p := &Processes{o: o, lines: map[string]Line{}, began: map[string]time.Time{}, soon: map[string]int{}}
	maps.Copy(p.lines, o.Kept)
	return p
}

// Version is this program's.
func (p *Processes) Version() string { return p.o.Version }

// Ended is how many processes have ended by themselves.
func (p *Processes) Ended() uint64 { return p.ended.Load() }

// Close lets go of all processes: those whose lines nobody keeps end.
func (p *Processes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, line := range p.lines {
		line.close()
		delete(p.lines, name)
	}
}

// Retain ends all but the processes of these devices.
func (p *Processes) Retain(names map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.lines {
		if !names[name] {
			p.end(name)
		}
	}
}

// Tidy is Retain once no other weftd has the processes, and does nothing before.
func (p *Processes) Tidy(names map[string]bool) {
	if p.o.Settled() {
		p.Retain(names)
	}
}

// end is End. mu is held.
func (p *Processes) end(name string) {
	line, ok := p.lines[name]
	if !ok {
		return
	}
	_ = sendLine(line.FD, lineEnd, -1) // if it has ended there is nothing to say
	line.endNow()
	line.close()
	delete(p.lines, name)
	p.o.Forget(name)
}

// lineTime is how long the end of a line is waited for, under the locks of whoever asks, where the process has a descriptor too.
const lineTime = 100 * time.Millisecond

// endTime is how long a process that was told to end may take before it is killed: it is stopped, or hangs, and has the TUN.
const endTime = time.Second

// ended reports whether the process has ended: nothing has the other end of its line, or its descriptor says so. What has closed its other
// descriptors is about to close that one, for which is waited: not for long where a descriptor will say it at the next try.
func (l Line) ended() bool {
	fds := []unix.PollFd{{Fd: int32(l.FD)}, {Fd: int32(l.Process), Events: unix.POLLIN}} // of a line its end (POLLHUP), and a negative one is passed over
	wait := endTime
	if l.Process >= 0 {
		wait = lineTime
	}
	for end := time.Now().Add(wait); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(end)/time.Millisecond)))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// endNow waits until the process has ended, and kills it if it does not.
func (l Line) endNow() {
	if l.Process < 0 {
		return
	}
	fds := []unix.PollFd{{Fd: int32(l.Process), Events: unix.POLLIN}}
	for end := time.Now().Add(endTime); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(end)/time.Millisecond)))
		if !errors.Is(err, unix.EINTR) {
			if n == 0 {
				_ = unix.PidfdSendSignal(l.Process, unix.SIGKILL, nil, 0) // of another user's it is not to be had
			}
			return
		}
	}
}

// Open connects to the process of the device of that name, and starts one if there is none. See OpenUser about the TUN; lost is called, without
// any lock, when the process ends by itself.
func (p *Processes) Open(name string, home, away Inside, lost func()) (*Remote, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.adopt(name, away, lost)
	if r == nil && err == nil {
		r, err = p.start(name, home, away, lost)
	}
	if err != nil {
		return nil, err
	}
	r.end = func() { p.End(name) }
	return r, nil
}

// Shared reports whether there is a process of that name which another weftd has too.
func (p *Processes) Shared(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.lines[name]
	return ok && !p.o.Settled()
}

// End ends the process of the device of that name, if there is one.
func (p *Processes) End(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(name)
	delete(p.soon, name) // it was asked for
}

// adopt connects to the process that there is; nil if there is none, or none that is of use.
func (p *Processes) adopt(name string, away Inside, lost func()) (*Remote, error) {
	line, ok := p.lines[name]
	if !ok {
		return nil, nil
	}
	if time.Since(p.began[name]) > soonTime {
		p.soon[name] = 0
	}
	r, err := connect(name, line.FD, away, lost)
	if errors.Is(err, errCut) && line.ended() {
		err = errEnded
	}
	switch {
	case err == nil:
		p.o.Keep(name, line) // what is kept is counted by what is said of it
		p.o.Logger.Info("the device's process goes on", "device", name, "pid", r.about.PID, "version", r.about.Version)
		return r, nil
	case errors.Is(err, errEnded):
		p.ended.Add(1)
		p.o.Logger.Warn("the process that encrypts has ended: starting another one, and sessions begin anew", "event", event.DeviceRepaired, "device", name)
	case errors.Is(err, errMute) && p.o.Settled(): // stopped, or it hangs, and carries nothing
		p.ended.Add(1)
		p.o.Logger.Error("the process that encrypts does not answer: it is ended, another one is started, and sessions begin anew", "event", event.DeviceRepaired, "device", name, "reason", err)
	case errors.Is(err, errForeign) && p.o.Settled():
		p.o.Logger.Warn("the process that encrypts cannot be spoken to: starting another one, and sessions begin anew", "event", event.DeviceRepaired, "device", name, "reason", err)
	case errors.Is(err, errCut):
		return nil, fmt.Errorf("%w, and goes on: it is asked again; if it stays so it may be short of descriptors: weft upgrade --encryption replaces it", err)
	default:
		return nil, err
	}
	p.end(name)
	return nil, nil
}

// A process that was told to end, or whose weftd has died with whoever kept its line, has the TUN for a moment longer.
const (
	busyTime  = 2 * time.Second
	busyAgain = 10 * time.Millisecond
)

// A process that ends within soonTime of its start is started again after pauses that double from soonFirst to soonLast: each greets every peer.
const (
	soonTime  = 5 * time.Second
	soonFirst = 200 * time.Millisecond
	soonLast  = 30 * time.Second
)

// pause returns an error while it is too early to start the process of a device again.
func (p *Processes) pause(name string) error {
	began := p.began[name]
	if time.Since(began) > soonTime+soonLast {
		p.soon[name] = 0
	}
	if n := p.soon[name]; n > 1 {
		if wait := time.Until(began.Add(min(soonFirst<<min(n, 10), soonLast))); wait > 0 {
			return fmt.Errorf("device %s: its process has ended %d times in a row soon after its start: another one in %v", name, n, wait.Round(100*time.Millisecond))
		}
	}
	return nil
}

// start starts a process.
func (p *Processes) start(name string, home, away Inside, lost func()) (*Remote, error) {
	if err := p.pause(name); err != nil {
		return nil, err
	}
	fd, err := openTUN(name, home)
	for end := time.Now().Add(busyTime); errors.Is(err, unix.EBUSY) && time.Now().Before(end); fd, err = openTUN(name, home) {
		time.Sleep(busyAgain)
	}
	if err != nil {
		return nil, err
	}
	tun := os.NewFile(uintptr(fd), "tun")
	defer func() { _ = tun.Close() }() // the process has its own
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "line")
	line := Line{pair[0], -1}
	line.Process, err = p.o.Start(name, theirs, tun)
	_ = theirs.Close() // as above
	if err != nil {
		closeAll(pair[:1])
		return nil, fmt.Errorf("device %s: start its process: %w", name, err)
	}
	p.began[name], p.soon[name] = time.Now(), p.soon[name]+1
	r, err := connect(name, line.FD, away, lost)
	if err != nil {
		line.endNow()
		line.close()
		return nil, err
	}
	p.lines[name] = line
	p.o.Keep(name, line)
	p.o.Logger.Info("packets are encrypted by a process of its own, which outlives this one", "device", name, "pid", r.about.PID)
	if r.about.Lacks != "" {
		p.o.Logger.Warn("the process that encrypts keeps rights that it has no need of", "event", event.DeviceRepaired, "device", name, "pid", r.about.PID, "reason", r.about.Lacks)
	}
	return r, nil
}
