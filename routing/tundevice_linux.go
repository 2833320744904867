package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// deviceState is the TUN as it was opened.
type deviceState struct {
	name  string // "" before it was
	index int
}

// ensureTUN makes sure that we hold the TUN, and opens it if not. nets are the overlay's networks, former those that
// this node was in before.
func (p *plane) ensureTUN(nets, former []netip.Prefix) error {
	if p.device.name == "" {
		return p.firstTUN(nets, slices.Concat(nets, former))
	}
	d, err := p.k.Device(p.device.name)
	if err == nil && d.Index == p.device.index && p.tun != 0 {
		return nil
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	p.log.Warn("device is gone, making it again", "device", p.device.name)
	return p.openDevice(p.device.name)
}

// firstTUN chooses the TUN's name and opens it. A name that turns out to be in
// use by another process, with another network, leaves the next.
func (p *plane) firstTUN(nets, all []netip.Prefix) error {
	ds, err := p.k.Devices()
	if err != nil {
		return err
	}
	as, err := p.k.AddrInfos()
	if err != nil {
		return err
	}
	addrs := make(map[int][]netip.Addr)
	for _, a := range as {
		addrs[a.Index] = append(addrs[a.Index], a.Addr)
	}
	inUse := map[string]bool{}
	for {
		name := pickDevice(ds, addrs, nets, inUse)
		i := slices.IndexFunc(ds, func(d kernel.Device) bool { return d.Name == name })
		if i < 0 { // none of this network
			name = pickDevice(ds, addrs, all, inUse)
		}
		err := p.openDevice(name)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY):
			return err
		case i >= 0 && len(addrs[ds[i].Index]) > 0:
			return fmt.Errorf("%w: a running process has it with an address in this network: stop flanneld or the other weftd", err)
		}
		inUse[name] = true
	}
}

// openDevice opens the TUN by name and notes its number.
func (p *plane) openDevice(name string) error {
	if err := p.openTUN(name); err != nil {
		return err
	}
	d, err := p.k.Device(name)
	if err != nil {
		return err
	}
	p.device = deviceState{name: name, index: d.Index}
	return nil
}

// listenAll binds the underlay ports of both families. A vxlan device of the kernel's that has the port gives way if
// it is ours or flannel's, which networks tell.
func (p *plane) listenAll(u underlay.Link, link string, networks []netip.Prefix) error {
	var faults []error
	for _, f := range []struct {
		six  bool
		addr netip.Addr
	}{{false, u.Addr4}, {true, u.Addr6}} {
		var local netip.AddrPort
		if f.addr.IsValid() {
			local = netip.AddrPortFrom(f.addr, p.port)
		}
		err := p.listen(f.six, local, link)
		if errors.Is(err, unix.EADDRINUSE) && p.freePort(networks) {
			err = p.listen(f.six, local, link)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: is flanneld or another weftd running here?", err)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// freePort deletes the kernel's vxlan devices that hold the data plane's port, if they are ours or
// flannel's by name and by their addresses: a udp network may have the port that a former vxlan one
// had. It reports whether there is one less.
func (p *plane) freePort(networks []netip.Prefix) (freed bool) {
	vs, err := p.k.VTEPsOnPort(p.port)
	if err != nil {
		p.log.Warn("which device holds the port is not known", "port", p.port, "error", err)
		return false
	}
	for _, v := range vs {
		if !kernel.IsVTEPName(v.Name) {
			continue
		}
		if err := p.k.RemoveVTEP(v, networks); err != nil {
			p.log.Warn("the kernel's vxlan device holds the port", "device", v.Name, "port", v.Port, "error", err)
			continue
		}
		p.log.Info("removed the kernel's vxlan device, whose port the data plane takes", "device", v.Name, "port", v.Port)
		freed = true
	}
	return freed
}

// addInterest tells the monitor what of the data plane's to look for.
func (p *plane) addInterest(i *kernel.Interest) {
	i.Filters, i.Hops = true, p.next.interest()
	if p.device.name != "" {
		i.Own[p.device.index], i.Names[p.device.name] = true, true
	}
	for _, f := range p.raws() {
		if f.tap != 0 {
			i.Own[f.tap], i.Names[f.port.TAP()] = true, true
		}
	}
}
