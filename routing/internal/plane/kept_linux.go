package plane

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
	"weft/tunnel/port"
)

// The names under which ports are kept.
const (
	keptTUN   = "tun"
	keptUnder = "underlay" // with 4 or 6
)

// KeptFresh is routing.KeptFresh.
const KeptFresh = 30 * time.Second

// underName is the name under which the port of a family is kept.
func underName(six bool) string {
	if six {
		return keptUnder + "6"
	}
	return keptUnder + "4"
}

// takeUp opens a port: of what was inherited under a name, if that is what is wanted, else anew, with open
// and nil.
func (p *Plane) takeUp(name string, open func(*port.Kept) error) error {
	k, ok := p.o.Inherited[name]
	if !ok {
		return open(nil)
	}
	discarded := 0
	if p.o.Away > KeptFresh {
		discarded = k.Discard()
	}
	delete(p.o.Inherited, name)
	err := open(&k)
	if err == nil {
		p.log.Info("port taken over from an earlier weftd", "port", name, "kind", k.Kind,
			"discarded_packets", discarded)
		return nil
	}
	p.log.Info("port of an earlier weftd is made anew", "port", name, "cause", err)
	k.Close()
	p.unkeep(name)
	return open(nil)
}

// keep has a port kept for the next process. extra, if not 0, is a further descriptor behind those of the
// port.
func (p *Plane) keep(name string, of port.Port, extra int) {
	if p.o.Keep == nil {
		return
	}
	k, err := describe(of, extra)
	if err != nil {
		p.log.Warn("a restart will lose packets: port cannot be kept", "port", name, "error", err)
		return
	}
	defer k.Close()
	p.o.Keep(name, &k)
}

// describe is what is to be kept of a port. The descriptors are the caller's.
func describe(of port.Port, extra int) (port.Kept, error) {
	a, ok := of.(port.KeepablePort)
	if !ok {
		return port.Kept{}, fmt.Errorf("a port of type %T", of)
	}
	k, err := a.Keep()
	if err != nil || extra <= 0 {
		return k, err
	}
	fd, err := unix.FcntlInt(uintptr(extra), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		k.Close()
		return port.Kept{}, err
	}
	k.FDs = append(k.FDs, fd)
	return k, nil
}

// unkeep ends the keeping of a port that is closed, unless it is another's.
func (p *Plane) unkeep(name string) {
	if p.o.Keep != nil && !p.left {
		p.o.Keep(name, nil)
	}
}

// disinherit closes what was inherited and is wanted by nobody.
func (p *Plane) disinherit(names ...string) {
	for _, name := range names {
		if k, ok := p.o.Inherited[name]; ok {
			delete(p.o.Inherited, name)
			k.Close()
			p.unkeep(name)
		}
	}
}

// takeIngress opens the ingress filter of a port of path raw that was kept, and closes the one that came with
// it: the last descriptor of k owns that. So there is one at each moment.
func (p *Plane) takeIngress(k *port.Kept, link string, local netip.AddrPort) (*kernel.Ingress, error) {
	last := len(k.FDs) - 1
	if k.Kind != port.KindRaw || last < 0 {
		return nil, fmt.Errorf("%w: it is of kind %s", port.ErrUnfit, k.Kind)
	}
	owner := k.FDs[last]
	k.FDs = k.FDs[:last]
	i, err := p.out.OpenIngress(link, local)
	go func() { _ = unix.Close(owner) }() // which takes the kernel some 15 ms
	if err != nil {
		return nil, fmt.Errorf("%w: %w", port.ErrUnfit, err)
	}
	return i, nil
}

// dropIngress removes an ingress filter, unless it is others' too. Nil is none.
func (p *Plane) dropIngress(i *kernel.Ingress) error {
	switch {
	case i == nil:
		return nil
	case p.left:
		i.Leave()
		return nil
	}
	return i.Close()
}

// Pause is Engine.Pause.
func (p *Plane) Pause() { p.engine.Pause() }

// Resume is Engine.Resume.
func (p *Plane) Resume() { p.engine.Resume() }

// Begin has an engine that took ports up read what has waited in them, once it can deliver that: there is a
// table, a TUN and a port on the underlay. Packets read earlier could only be dropped. With anyway it begins
// with what there is.
func (p *Plane) Begin(anyway bool) {
	whole := p.table != nil && p.tun != 0 && (p.sockets[0].id != 0 || p.sockets[1].id != 0)
	if !p.waits || !whole && !anyway {
		return
	}
	p.waits = false
	p.engine.Resume()
}

// Abandon leaves the ports to others: Run and Close undo nothing.
func (p *Plane) Abandon() { p.left = true }
