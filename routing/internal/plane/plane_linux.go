package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/routing/event"
	"weft/routing/internal/kernel"
	"weft/tunnel"
	"weft/tunnel/port"
)

// Options are what a data plane is made of.
type Options struct {
	// Format is that of the datagrams, Port the UDP port that every node receives them on; ipip has none, and no
	// path but socket.
	Format encap.Format
	Port   uint16
	// Path is how packets are moved. With Auto it is the best that the kernel, the underlay's
	// link and our capabilities allow, and Path the one to begin with.
	Path tunnel.Path
	Auto bool
	// Off are the offloads that paths socket and raw do without.
	Off port.OffloadSet
	// Forwarding is one of ForwardingWords: what is done with the underlay device's feature
	// rx-udp-gro-forwarding.
	Forwarding string
	// StateDir is a directory that outlives the process; "" for none.
	StateDir string
	// Outside is the namespace of the underlay's sockets; nil means that of the TUN.
	Outside *kernel.Kernel
	// Workers is how many there are; 0 means tunnel.DefaultWorkers.
	Workers int
	// Inherited, Away and Keep are as those of routing.BackendConfig; Inherited is the plane's from New on.
	Inherited map[string]port.Kept
	Away      time.Duration
	Keep      func(name string, k *port.Kept)
	// Logger is required.
	Logger *slog.Logger
	// Nudge asks whoever calls the methods to look again at what may have changed. It must not block.
	Nudge func(kernel.Change)
	// PortLost, if not nil, is called for each port that died by itself, also for one that is not the plane's.
	// It must not block.
	PortLost func(tunnel.PortID)
}

// Plane is the data plane with the ports that a backend gives it: one TUN and an underlay socket for each
// family. Its methods but Engine and Run are called by one goroutine at a time.
type Plane struct {
	k       *kernel.Kernel // of the TUN
	out     *kernel.Kernel // of the underlay
	o       Options
	engine  *tunnel.Engine
	path    tunnel.Path // o.Path, or a lesser one
	log     *slog.Logger
	device  deviceState   // the TUN
	tun     tunnel.PortID // 0: none
	sockets [2]socketPort // IPv4, IPv6
	table   *tunnel.Table // the last one published; nil before
	next    hopState      // where the frames of path raw go
	left    bool          // the ports are others', and outlive us
	waits   bool          // the engine reads nothing until all that it needs is there
	forward *forwarder

	lostMu sync.Mutex // a leaf lock: the data plane's workers take it
	lost   map[tunnel.PortID]bool
}

// New makes a data plane without ports, with its TUN in the namespace of k, which is borrowed until Close
// returns, as Options.Outside is.
func New(k *kernel.Kernel, o Options) (*Plane, error) {
	p := &Plane{k: k, out: cmp.Or(o.Outside, k), o: o, path: o.Path, log: o.Logger,
		lost: map[tunnel.PortID]bool{}}
	p.waits = len(o.Inherited) > 0
	cfg := tunnel.Config{
		Format: o.Format, Port: o.Port, Workers: o.Workers, Logger: o.Logger,
		PortLost: func(id tunnel.PortID, _ error) { p.portLost(id) }, Paused: p.waits,
	}
	forwarding := o.Forwarding
	if o.Path == tunnel.PathPortable || o.Off.Has(port.OffloadGRO) {
		// the ports read nothing that is joined: an earlier process' feature is given back
		forwarding = ForwardingOff
	}
	var err error
	if p.engine, err = tunnel.New(cfg); err != nil {
		return nil, fmt.Errorf("data plane: %w", err)
	}
	p.forward = newForwarder(p.out, forwarding, o.StateDir, o.Logger)
	return p, nil
}

// Engine is the workers, for their counters. It is the same for the plane's life.
func (p *Plane) Engine() *tunnel.Engine { return p.engine }

// Device is the TUN's name; "" before it was opened.
func (p *Plane) Device() string { return p.device.name }

// Devices are those that a person is shown: the TUN, if it was opened.
func (p *Plane) Devices() []string {
	if p.device.name == "" {
		return nil
	}
	return []string{p.device.name}
}

// portLost notes a port that died by itself. The data plane calls it.
func (p *Plane) portLost(id tunnel.PortID) {
	p.lostMu.Lock()
	p.lost[id] = true
	p.lostMu.Unlock()
	if p.o.PortLost != nil {
		p.o.PortLost(id)
	}
	p.o.Nudge(kernel.ChangedAll)
}

// reapLost detaches ports that died, so that they are opened anew.
func (p *Plane) reapLost() {
	p.lostMu.Lock()
	lost := p.lost
	p.lost = map[tunnel.PortID]bool{}
	p.lostMu.Unlock()
	for id := range lost {
		if p.reap(id) {
			p.log.Warn("port of the data plane died, opening it anew", "event", event.DeviceRepaired, "port", id)
		}
	}
}

// openTUN opens or re-attaches the persistent TUN, in place of the one before. The
// error wraps unix.EBUSY if another process holds it.
func (p *Plane) openTUN(name string) error {
	var t port.Port
	o := port.TUNOptions{Name: name, Queues: p.engine.Queues(), Off: p.o.Off, Logger: p.log}
	err := p.takeUp(keptTUN, func(k *port.Kept) error {
		o.From = k
		return p.k.Do(func() (err error) {
			t, err = p.newTUN(o)
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := p.closeTUN(); err != nil {
		return errors.Join(err, t.Close())
	}
	id, err := p.engine.Attach(t, tunnel.RoleHost)
	if err != nil {
		err = errors.Join(err, t.Close())
		p.unkeep(keptTUN)
		return err
	}
	p.tun = id
	p.keep(keptTUN, t, 0)
	return nil
}

// newTUN opens the TUN as the path wants it.
func (p *Plane) newTUN(o port.TUNOptions) (port.Port, error) {
	if p.path == tunnel.PathPortable {
		return port.OpenTUN(o)
	}
	t, err := port.OpenOffloadTUN(o)
	if err == nil || !p.o.Auto || o.From != nil || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM) {
		return t, err
	}
	plain, plainErr := port.OpenTUN(o)
	if plainErr != nil {
		return nil, plainErr
	}
	p.log.Warn("paths raw and socket need what this kernel's TUN has not: path portable it is", "event",
		event.PathChosen, "cause", err)
	p.path = tunnel.PathPortable
	return plain, nil
}

// underlayOptions are those of an underlay port at local, on any path.
func (p *Plane) underlayOptions(local netip.AddrPort) port.UDPOptions {
	return port.UDPOptions{Local: local, Format: p.o.Format, Queues: p.engine.Queues(),
		Lanes: p.engine.Lanes(), Off: p.o.Off, Logger: p.log}
}

// newSocket binds an underlay socket as the path, which is not raw, wants it.
func (p *Plane) newSocket(path tunnel.Path, o port.UDPOptions) (port.Underlay, error) {
	if o.Format == encap.FormatIPIP {
		return port.ListenIPIP(o)
	}
	if path == tunnel.PathPortable {
		return port.ListenUDP(o)
	}
	return port.ListenOffload(o)
}

// closeTUN detaches from the TUN, which stays.
func (p *Plane) closeTUN() error {
	if p.tun == 0 {
		return nil
	}
	id := p.tun
	p.tun = 0
	p.unkeep(keptTUN)
	return p.engine.Detach(id)
}

// reap detaches a port that died, and reports whether it was one in use.
func (p *Plane) reap(id tunnel.PortID) bool {
	switch id {
	case p.tun:
		p.tun = 0
		p.unkeep(keptTUN)
		_ = p.engine.Detach(id) // closing a dead descriptor has nothing left to say
	case p.sockets[0].id:
		_ = p.closePort(&p.sockets[0])
	case p.sockets[1].id:
		_ = p.closePort(&p.sockets[1])
	default:
		return false
	}
	return true
}

// Publish swaps in the table of s. Peers that were unsound are refused, and the others in use. Beside an
// error what was in place stays: before the first, nobody is let in.
func (p *Plane) Publish(s tunnel.Spec) (refused []*tunnel.PeerError, err error) {
	var t *tunnel.Table
	if p.table == nil {
		t, err = tunnel.NewTable(p.o.Format, s)
	} else {
		t, err = p.table.Next(s)
	}
	if t == nil {
		return nil, err
	}
	p.table = t
	p.engine.Swap(t)
	var rest []error
	for _, e := range kernel.Joined(err) {
		var bad *tunnel.PeerError
		if errors.As(e, &bad) && bad.Index < len(s.Peers) {
			refused = append(refused, bad)
		} else {
			rest = append(rest, e)
		}
	}
	p.next.setPeers(s.Peers, refused)
	return refused, errors.Join(rest...)
}

// Run carries packets until ctx ends; then it returns nil.
func (p *Plane) Run(ctx context.Context) error { return p.engine.Run(ctx) }
