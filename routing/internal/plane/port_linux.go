package plane

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing/event"
	"weft/routing/internal/errno"
	"weft/routing/internal/kernel"
	"weft/tunnel"
	"weft/tunnel/port"
)

// Obstacle says, of options that ask for path raw in words, why it is not possible on the link, from the
// first of the underlay's own addresses; nil if it is, or if another path will do.
func (o Options) Obstacle(k *kernel.Kernel, link string, local []netip.Addr) error {
	if o.Path != tunnel.PathRaw || o.Auto || len(local) == 0 {
		return nil
	}
	if err := k.RawObstacle(link, local[0]); err != nil {
		return fmt.Errorf(`path raw is not possible: %w; "Path":"auto" takes the best that is`, err)
	}
	return nil
}

// socketPort is an underlay port of the data plane.
type socketPort struct {
	id     tunnel.PortID // 0: none
	local  netip.AddrPort
	path   tunnel.Path
	frames *frames // path raw's; nil on the others
	// why says why path raw is not possible, nil if it is; it is looked at again after retry,
	// or when the link is no longer that of index.
	why   error
	retry time.Time
	index int
}

// retryRaw is how often a port on path socket looks whether raw has become possible.
const retryRaw = 30 * time.Second

// frames is what path raw has in the kernel for one port.
type frames struct {
	port    *port.Raw
	link    int // index
	ingress *kernel.Ingress
	tap     int    // index of the TAP; 0 if there is none
	note    string // what the TAP lacks
	hops    map[netip.Addr]port.NextHop
}

// socket is the port of a family.
func (p *Plane) socket(six bool) *socketPort {
	if six {
		return &p.sockets[1]
	}
	return &p.sockets[0]
}

// pathFor is the path that a family's port shall have on the link, and why it is none better.
func (p *Plane) pathFor(s *socketPort, local netip.AddrPort, link string) (tunnel.Path, error) {
	if p.path != tunnel.PathRaw || !local.IsValid() {
		return p.path, nil
	}
	works := s.id != 0 && s.local == local
	if p.o.Auto {
		switch err := p.out.Protected(); {
		case works && errno.Exhausted(err):
			return s.path, s.why
		case err != nil:
			return tunnel.PathSocket, err
		}
	}
	e, err := p.out.Ether(link)
	switch {
	case works && errno.Exhausted(err):
		return s.path, s.why
	case works && s.path == tunnel.PathRaw && (errors.Is(err, kernel.ErrNoLink) ||
		err == nil && e.Index == s.frames.link):
		return tunnel.PathRaw, nil // as it is; if the link is gone, until there is another
	case err != nil:
		return tunnel.PathSocket, err
	case s.id != 0 && s.path == tunnel.PathSocket && s.why != nil && e.Index == s.index &&
		time.Now().Before(s.retry):
		return tunnel.PathSocket, s.why
	case s.id == 0 && p.o.Inherited[underName(local.Addr().Is6())].Kind != port.KindSockets:
		// for which raw was not possible there is no port that a fault would cost: open finds out, without the
		// probe of the ingress filter, which takes time
		return tunnel.PathRaw, nil
	}
	if err := p.out.RawObstacle(link, local.Addr()); err != nil {
		return tunnel.PathSocket, err
	}
	return tunnel.PathRaw, nil
}

// listen binds a family's underlay port to local on the link, in place of the one before; the
// zero AddrPort only closes. There is no port for a moment, since the engine takes one a
// family. If path raw is not possible it is path socket, and if raw was asked for, an error as well.
func (p *Plane) listen(six bool, local netip.AddrPort, link string) error {
	s := p.socket(six)
	path, why := p.pathFor(s, local, link)
	if s.id == 0 || s.local != local || s.path != path || path == tunnel.PathRaw && !p.tend(s, link) {
		if err := p.closePort(s); err != nil {
			return err
		}
		if !local.IsValid() {
			return nil
		}
		var err error
		if why, err = p.open(s, local, path, link, why); err != nil {
			return err
		}
	}
	return p.explain(s, why, link)
}

// open makes the port of a path, and one of path socket where raw fails.
func (p *Plane) open(s *socketPort, local netip.AddrPort, path tunnel.Path, link string,
	why error) (error, error) {
	name := underName(local.Addr().Is6())
	if path == tunnel.PathRaw {
		why = p.takeUp(name, func(k *port.Kept) error { return p.openRaw(s, local, link, k) })
		if why == nil || errors.Is(why, unix.EADDRINUSE) || errors.Is(why, unix.EADDRNOTAVAIL) {
			return nil, why
		}
		path = tunnel.PathSocket
	}
	var sock port.Underlay
	err := p.takeUp(name, func(k *port.Kept) error {
		o := p.underlayOptions(local)
		o.From = k
		return p.out.Do(func() (err error) {
			sock, err = p.newSocket(path, o)
			return err
		})
	})
	if err != nil {
		return why, err
	}
	id, err := p.engine.Attach(sock, tunnel.RoleUnderlay)
	if err != nil {
		err = errors.Join(err, sock.Close())
		p.unkeep(name)
		return why, err
	}
	*s = socketPort{id: id, local: local, path: path}
	p.keep(name, sock, 0)
	if err := p.out.DropTAP(kernel.TAPName(local.Addr().Is6())); err != nil { // of path raw, before
		p.log.Warn("device that is used no more", "error", err)
	}
	return why, nil
}

// openRaw opens a port of path raw. The ingress filter comes before the first frame, so that
// none arrives twice.
//
// Of a port that was kept, from, the last descriptor is the ingress filter's owner. Both are taken up, or
// neither.
func (p *Plane) openRaw(s *socketPort, local netip.AddrPort, link string, from *port.Kept) error {
	e, err := p.out.Ether(link)
	if err != nil {
		return err
	}
	if err := p.out.ProbeFrames(); err != nil { // what a peer sends must not arrive where it cannot be read
		if from != nil { // an earlier weftd did not ask
			err = errors.Join(port.ErrUnfit, err)
		}
		return err
	}
	f := &frames{link: e.Index}
	if from != nil {
		if f.ingress, err = p.takeIngress(from, link, local); err != nil {
			return err
		}
	}
	o := port.RawOptions{UDPOptions: p.underlayOptions(local), Link: e.Index,
		TAP: kernel.TAPName(local.Addr().Is6())}
	o.From = from
	var raw *port.Raw
	err = p.out.Do(func() (err error) { raw, err = port.OpenRaw(o); return err })
	if err != nil {
		return errors.Join(err, p.dropIngress(f.ingress))
	}
	if f.port = raw; f.ingress == nil {
		f.ingress, err = p.out.OpenIngress(link, local)
	}
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	id := tunnel.PortID(0)
	if err = raw.Listen(); err == nil {
		id, err = p.engine.Attach(raw, tunnel.RoleUnderlay)
	}
	if err != nil {
		return errors.Join(err, raw.Close(), p.dropIngress(f.ingress))
	}
	*s = socketPort{id: id, local: local, path: tunnel.PathRaw, frames: f}
	if !p.tend(s, link) { // without the filter every datagram would arrive twice
		return errors.Join(fmt.Errorf("link %s or its ingress filter went while the port was opened", link),
			p.closePort(s))
	}
	p.keep(underName(local.Addr().Is6()), raw, f.ingress.Owner())
	return nil
}

// tend looks after the kernel's side of a port of path raw. It is false if the port must be
// opened anew.
func (p *Plane) tend(s *socketPort, link string) bool {
	f := s.frames
	switch e, err := p.out.Ether(link); {
	case err != nil:
		return true // until there is a link again
	case e.Index != f.link:
		return false
	}
	if f.ingress == nil { // it could not be made again
		return false
	}
	if err := f.ingress.Check(); err != nil {
		p.log.Warn("ingress filter is gone, making it again", "event", event.DeviceRepaired, "cause", err)
		if err := p.dropIngress(f.ingress); err != nil {
			p.log.Warn("ingress filter", "error", err)
		}
		if f.ingress, err = p.out.OpenIngress(link, s.local); err != nil {
			p.log.Error("ingress filter", "error", err)
			return false
		}
		p.keep(underName(s.local.Addr().Is6()), f.port, f.ingress.Owner())
	}
	name := f.port.TAP()
	if name == "" {
		return true
	}
	index, err := p.out.Hairpin(name, f.tap, f.link)
	if errors.Is(err, kernel.ErrNoLink) && f.tap != 0 {
		p.log.Warn("device is gone, making it again", "event", event.DeviceRepaired, "device", name)
		return false
	}
	f.tap = index
	f.port.UseTAP(err == nil)
	note := ""
	if err != nil {
		note = fmt.Sprintf("superpackets are cut before they leave, which costs throughput in TCP: %v", err)
	}
	if note != f.note && note != "" {
		p.log.Warn("no tunnel GSO", "event", event.PathChosen, "cause", err)
	}
	f.note = note
	return true
}

// explain notes why a port is not on path raw, and says so once.
func (p *Plane) explain(s *socketPort, why error, link string) error {
	if why != nil && (s.why == nil || s.why.Error() != why.Error()) {
		p.log.Warn("path raw is not possible: path socket it is", "event", event.PathChosen, "local", s.local,
			"cause", why)
	}
	if s.why == nil || !time.Now().Before(s.retry) {
		s.retry = time.Now().Add(retryRaw)
	}
	s.why = why
	if e, err := p.out.Ether(link); err == nil {
		s.index = e.Index
	}
	if why != nil && !p.o.Auto {
		return fmt.Errorf("path raw, for %v: %w", s.local, why)
	}
	return nil
}

// closePort takes a port out of use: first the frames end, then the ingress filter, so that
// no datagram arrives twice.
func (p *Plane) closePort(s *socketPort) error {
	old := *s
	*s = socketPort{}
	if old.id != 0 {
		p.unkeep(underName(old.local.Addr().Is6()))
	}
	// A child between fork and exec has copies of our descriptors, with which the TAP and the table
	// would live on, and be in the way of those of the next port.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var err error
	if old.id != 0 {
		err = p.engine.Detach(old.id)
	}
	if old.frames != nil && old.frames.ingress != nil {
		err = errors.Join(err, p.dropIngress(old.frames.ingress))
	}
	return err
}

// Close frees what the engine does not, after Run has returned.
func (p *Plane) Close() error {
	var errs []error
	for i := range p.sockets {
		if f := p.sockets[i].frames; f != nil && f.ingress != nil {
			errs = append(errs, p.dropIngress(f.ingress))
			f.ingress = nil
		}
		if p.sockets[i].id != 0 {
			p.unkeep(underName(i == 1))
		}
	}
	if p.tun != 0 {
		p.unkeep(keptTUN)
	}
	p.disinherit(keptTUN, underName(false), underName(true))
	return errors.Join(errs...)
}

// raws are the ports of path raw.
func (p *Plane) raws() []*frames {
	var fs []*frames
	for i := range p.sockets {
		if f := p.sockets[i].frames; f != nil {
			fs = append(fs, f)
		}
	}
	return fs
}

// PathName is the path in use; if the families' differ, both.
func (p *Plane) PathName() string {
	name := ""
	for _, s := range p.sockets {
		switch word := s.path.String(); {
		case s.id == 0, word == name:
		case name == "":
			name = word
		default:
			name += "+" + word
		}
	}
	if name == "" {
		return p.path.String()
	}
	return name
}

// Notes say what the paths lack: sentences for the operator.
func (p *Plane) Notes() []string {
	var notes []string
	for _, s := range p.sockets {
		if s.id != 0 && s.why != nil {
			notes = append(notes, fmt.Sprintf("%v is on path %v, since raw is not possible: %v", s.local,
				s.path, s.why))
		}
		if s.frames != nil && s.frames.note != "" {
			notes = append(notes, s.frames.note)
		}
	}
	return notes
}
