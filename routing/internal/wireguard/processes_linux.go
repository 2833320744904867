package wireguard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessOptions say how devices' processes are started and kept.
type ProcessOptions struct {
	// Start starts a program that calls Serve for the device of that name, with the line and the TUN as descriptors 3 and 4. It borrows both.
	Start func(name string, line, tun *os.File) error
	// Keep has the line kept for the next weftd, also one that was Kept and is of use, and Forget ends that. Keep borrows the descriptor.
	Keep   func(name string, line int)
	Forget func(name string)
	// Kept are the lines that an earlier weftd left, or one that runs gave, by the devices' names. They are the Processes' from then on.
	Kept map[string]int
	// Settled reports whether no other weftd has these processes too.
	Settled func() bool
	// Version is this program's.
	Version string
	Logger  *slog.Logger
}

// Processes are the devices that are processes of their own. They outlive whoever has them, as long as somebody keeps their lines. It is safe
// for concurrent use.
type Processes struct {
	o ProcessOptions

	mu    sync.Mutex // protects what follows, and is held while one is started
	lines map[string]int
	ended uint64
}

// NewProcesses takes over what is kept.
func NewProcesses(o ProcessOptions) *Processes {
	p := &Processes{o: o, lines: map[string]int{}}
	for name, line := range o.Kept {
		p.lines[name] = line
	}
	return p
}

// Version is this program's.
func (p *Processes) Version() string { return p.o.Version }

// Ended is how many processes have ended by themselves.
func (p *Processes) Ended() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Close lets go of all processes: those whose lines nobody keeps end.
func (p *Processes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, line := range p.lines {
		closeAll([]int{line})
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

// end is End. mu is held.
func (p *Processes) end(name string) {
	line, ok := p.lines[name]
	if !ok {
		return
	}
	_ = sendLine(line, lineEnd, -1) // if it has ended there is nothing to say, and if it is stopped it finds that when it goes on
	closeAll([]int{line})
	delete(p.lines, name)
	p.o.Forget(name)
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

// End ends the process of the device of that name, if there is one.
func (p *Processes) End(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(name)
}

// adopt connects to the process that there is; nil if there is none, or none that is of use.
func (p *Processes) adopt(name string, away Inside, lost func()) (*Remote, error) {
	line, ok := p.lines[name]
	if !ok {
		return nil, nil
	}
	r, err := connect(name, line, away, lost)
	switch {
	case err == nil:
		p.o.Keep(name, line) // what is kept is counted by what is said of it
		p.o.Logger.Info("the device's process goes on", "device", name, "pid", r.about.PID, "version", r.about.Version)
		return r, nil
	case errors.Is(err, errEnded):
		p.ended++
		p.o.Logger.Warn("the process that encrypts has ended: starting another one, and sessions begin anew", "device", name)
	case errors.Is(err, errForeign) && p.o.Settled():
		p.o.Logger.Warn("the process that encrypts cannot be spoken to: starting another one, and sessions begin anew", "device", name, "reason", err)
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

// start starts a process.
func (p *Processes) start(name string, home, away Inside, lost func()) (*Remote, error) {
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
	err = p.o.Start(name, theirs, tun)
	_ = theirs.Close() // as above
	if err != nil {
		closeAll(pair[:1])
		return nil, fmt.Errorf("device %s: start its process: %w", name, err)
	}
	r, err := connect(name, pair[0], away, lost)
	if err != nil {
		closeAll(pair[:1])
		return nil, err
	}
	p.lines[name] = pair[0]
	p.o.Keep(name, pair[0])
	p.o.Logger.Info("packets are encrypted by a process of its own, which outlives this one", "device", name, "pid", r.about.PID)
	return r, nil
}
