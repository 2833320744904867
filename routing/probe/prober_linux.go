package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultPort is the UDP port of a node's overlay address on which it answers, unless another process has it.
const DefaultPort = 8286

// Config is what a Prober is made from.
type Config struct {
	// Port is where questions are answered; 0 means DefaultPort.
	Port uint16
	// Do runs a function in the network namespace to work in, on the calling goroutine; nil for the process's
	// own.
	Do func(func() error) error
	// Rejected returns what ICMP said of datagrams to addresses of the underlay; nil if nobody is told. It is
	// called while a peer is silent.
	Rejected func() map[netip.Addr]Rejection
	// Changed, if not nil, is called when Port returns another value. It must not block.
	Changed func()
	// Logger gets changes of peers; required.
	Logger *slog.Logger
}

// Here is this node's end of the ways.
type Here struct {
	// Addrs are the addresses that questions leave from and are answered at, of each family one at the most.
	Addrs []netip.Addr
	// Devices are those by which the packets of peers' nodes arrive. Packets from other devices, such as a
	// pod's, are not looked at.
	Devices []string
}

// Prober owns the sockets of a Core. Its methods are safe for concurrent use, and none of them waits for a
// peer.
type Prober struct {
	c   Config
	log *slog.Logger

	mu      sync.Mutex // protects what follows
	core    *Core
	here    Here
	timer   *time.Timer
	polled  time.Time
	udp     map[netip.Addr]udpSocket
	icmp    map[bool]EchoSocket // by whether it is for IPv6
	faults  map[string]string   // of sockets, by what they are for
	devices deviceNames
	ways    []Way
	stopped bool
	taken   bool
	askings []*asking
	readers sync.WaitGroup

	matrix   Matrix        // the last that was gathered
	gathered chan struct{} // closed when that is; nil if none is being gathered
}

// New returns a prober that asks nobody yet.
func New(c Config) *Prober {
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.Do == nil {
		c.Do = func(f func() error) error { return f() }
	}
	p := &Prober{
		c: c, log: c.Logger, core: NewCore(Unguessable),
		udp: map[netip.Addr]udpSocket{}, icmp: map[bool]EchoSocket{}, faults: map[string]string{},
	}
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	return p
}

// Unguessable returns a number that nobody can guess.
func Unguessable() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.BigEndian.Uint64(b[:])
}

// Run waits until ctx ends, and then closes the sockets. It returns nil.
func (p *Prober) Run(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	p.stopped = true
	if p.gathered != nil {
		close(p.gathered)
		p.gathered = nil
	}
	p.timer.Stop()
	for _, s := range p.udp {
		s.Close()
	}
	for _, s := range p.icmp {
		s.Close()
	}
	p.mu.Unlock()
	p.readers.Wait()
	return nil
}

// Update says what there is now: this node's end, and all ways to peers, which it keeps. It does nothing
// where nothing is new.
func (p *Prober) Update(here Here, ways []Way) {
	p.mu.Lock()
	taken := p.taken
	if !p.stopped && (len(p.faults) > 0 || !slices.Equal(ways, p.ways) ||
		!slices.Equal(here.Addrs, p.here.Addrs) || !slices.Equal(here.Devices, p.here.Devices)) {
		p.here, p.ways = here, ways
		p.open()
		p.step(Known{p.askable(ways)})
	}
	changed := taken != p.taken
	p.mu.Unlock()
	if changed && p.c.Changed != nil {
		p.c.Changed()
	}
}

// States is what is known of each way, by peer and address.
func (p *Prober) States() []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.States()
}

// Alone reports whether there are peers, and none of them answers.
func (p *Prober) Alone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Alone()
}

// ErrEnded says that the prober ended before what was asked for.
var ErrEnded = errors.New("weftd ends, or begins anew with another network config")

// Matrix asks all peers what they know of theirs, and waits for that, some seconds at the most, or until ctx
// ends: the error is its cause, or ErrEnded. Calls at the same time share one survey, and its result, which
// nobody may change.
func (p *Prober) Matrix(ctx context.Context) (Matrix, error) {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return Matrix{}, ErrEnded
	}
	done := p.gathered
	if done == nil {
		done = make(chan struct{})
		p.gathered = done
		p.step(Inquire{Own: slices.Clone(p.here.Addrs)})
	}
	p.mu.Unlock()
	return p.wait(ctx, done)
}

func (p *Prober) wait(ctx context.Context, done <-chan struct{}) (Matrix, error) {
	select {
	case <-done:
	case <-ctx.Done():
		return Matrix{}, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return Matrix{}, ErrEnded
	}
	return p.matrix, nil
}

// Port is where this node answers, for its record; 0 if it cannot.
func (p *Prober) Port() uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		return 0
	}
	return p.c.Port
}

// Faults says which sockets could not be opened, in sentences; none if all could that were needed.
func (p *Prober) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, f := range p.faults {
		out = append(out, f)
	}
	slices.Sort(out)
	return out
}

// open opens the sockets of this node's addresses that are not open yet, and closes those of others. p.mu is
// held.
func (p *Prober) open() {
	for a, s := range p.udp {
		if !slices.Contains(p.here.Addrs, a) {
			s.Close()
			delete(p.udp, a)
		}
	}
	maps.DeleteFunc(p.faults, func(what, _ string) bool { // of an address that this node had
		a, err := netip.ParseAddr(what)
		return err == nil && !slices.Contains(p.here.Addrs, a)
	})
	p.taken = false
	for _, a := range p.here.Addrs {
		if p.udp[a].socket != nil {
			continue
		}
		at := netip.AddrPortFrom(a, p.c.Port)
		var s udpSocket
		err := p.c.Do(func() (err error) { s, err = listenUDP(at); return err })
		if err != nil {
			p.taken = true
			p.fault(a.String(), fmt.Sprintf("peers are asked by ICMP only whether they answer, and not answered, at "+
				"%v: %v%s", at, err, remedy(err, unix.EADDRINUSE, "free that port, or run with --probe=false")))
			continue
		}
		p.fault(a.String(), "")
		p.udp[a] = s
		p.readers.Go(func() { s.read(p.arrived, p.failed) })
	}
}

// askable are the ways that can be asked by the sockets that there are: without one to ask peers of weft by,
// their kernels are asked, as others' are, and without one for that nobody is. A node that cannot ask must
// not say that nobody answers. p.mu is held.
func (p *Prober) askable(ways []Way) []Way {
	out, failed := make([]Way, 0, len(ways)), map[bool]bool{}
	for _, w := range ways {
		six := w.Addr.Is6()
		if p.udp[p.source(six)].socket == nil {
			w.Port = 0
		}
		if w.Port == 0 && !failed[six] {
			failed[six] = p.icmpOf(six).socket == nil
		}
		if w.Port != 0 || !failed[six] {
			out = append(out, w)
		}
	}
	return out
}

// fault notes why something could not be done, "" if it could, and says so if that is new. p.mu is held.
func (p *Prober) fault(what, why string) {
	if p.faults[what] == why {
		return
	}
	if why == "" {
		delete(p.faults, what)
		return
	}
	p.faults[what] = why
	p.log.Warn(why)
}

// tick is the timer's.
func (p *Prober) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if p.c.Rejected != nil && time.Since(p.polled) >= pollEvery && p.core.troubled() {
		p.polled = time.Now()
		p.step(Rejected{p.c.Rejected()})
		return
	}
	p.step(Tick{})
}

// pollEvery is the time between two looks at what ICMP said.
const pollEvery = 4 * time.Second

// step hands the core an event, and does what it wants. p.mu is held.
func (p *Prober) step(e Event) {
	now := time.Now()
	for events := []Event{e}; len(events) > 0; events = events[1:] {
		for _, f := range p.core.Step(now, events[0]) {
			switch f := f.(type) {
			case Send:
				if s := p.udp[p.source(f.To.Addr().Is6())]; s.socket != nil { // or else Faults says why
					events = p.unsent(events, f.To.Addr(), s.send(f.To, f.Data))
				}
			case Echo:
				events = p.echo(events, f)
			case Gathered:
				p.matrix = f.Matrix
				close(p.gathered)
				p.gathered = nil
			case Say:
				if f.Line.Warn {
					p.log.Warn(f.Line.Text, "event", f.Line.Event, "fact", f.Line.Fact, "look", "weft doctor")
				} else {
					p.log.Info(f.Line.Text, "event", f.Line.Event)
				}
			}
		}
	}
	if next := p.core.Next(); next.IsZero() {
		p.timer.Stop()
	} else {
		p.timer.Reset(max(time.Millisecond, next.Sub(now)))
	}
}

// source is this node's address of the family; the zero Addr if there is none.
func (p *Prober) source(six bool) netip.Addr {
	for _, a := range p.here.Addrs {
		if a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}

// remedy is what to do about err, if it is that.
func remedy(err, that error, do string) string {
	switch {
	case errors.Is(err, that):
		return ": " + do
	case errors.Is(err, unix.EMFILE):
		return ": raise LimitNOFILE in weftd's unit (ulimit -n), or look at what holds descriptors in /proc/PID/fd"
	}
	return ""
}

// icmpOf is the socket for echo requests of a family, opened if it is not yet; none if that fails. p.mu is
// held.
func (p *Prober) icmpOf(six bool) EchoSocket {
	if s, open := p.icmp[six]; open {
		return s
	}
	var s EchoSocket
	what := fmt.Sprintf("icmp %t", six)
	err := p.c.Do(func() (err error) { s, err = ListenEcho(six); return err })
	if err != nil {
		p.fault(what, fmt.Sprintf("no peer can be asked by ICMP whether it answers: %v%s", err,
			remedy(err, unix.EPERM, "give weftd CAP_NET_RAW")))
		return EchoSocket{}
	}
	p.fault(what, "")
	p.icmp[six] = s
	p.readers.Go(func() { s.Read(p.echoed, p.failed) })
	return s
}

// echo sends an echo request. It returns what else the core has to know, as unsent does.
func (p *Prober) echo(events []Event, f Echo) []Event {
	s := p.icmpOf(f.To.Is6())
	if s.socket == nil {
		return events // Faults says why
	}
	if f.Under { // the kernel chooses the source, as for outer packets
		_ = s.Send(netip.Addr{}, f.To, f.Nonce, f.Size)
		return events
	}
	return p.unsent(events, f.To, s.Send(p.source(f.To.Is6()), f.To, f.Nonce, f.Size))
}

// unsent adds that something could not be sent, which the core has to know. That a packet is too large for
// the device, or that there is no room at the moment, is a loss like any other.
func (p *Prober) unsent(events []Event, to netip.Addr, err error) []Event {
	if err == nil || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNREFUSED) {
		return events
	}
	why := err.Error()
	if errors.Is(err, unix.EPERM) {
		why = OwnFirewall
	}
	p.notReached(to, false, why)
	return append(events, Unsent{to, why})
}

// arrived takes in a datagram that came to addr by the device with that index.
func (p *Prober) arrived(from netip.AddrPort, device int, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || !p.devices.have(device, p.here.Devices, p.c.Do) {
		return
	}
	p.asked(from, b)
	p.step(Heard{from, b})
}

// failed takes in what ICMP says of something that was sent.
func (p *Prober) failed(f SendError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch why := "ICMP says " + f.Errno.Error(); {
	case p.stopped:
	case f.Errno == unix.EMSGSIZE:
		p.step(TooBig{f.To, f.MTU})
	case f.Errno == unix.ECONNREFUSED:
		p.notReached(f.To, true, "")
		p.step(Refused{f.To})
	default:
		p.notReached(f.To, false, why)
		p.step(Unsent{f.To, why})
	}
}

func (p *Prober) echoed(from netip.Addr, nonce uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.step(Echoed{from, nonce})
	}
}
