package plane

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weft/routing/event"
	"weft/routing/internal/kernel"
)

// deviceState is the TUN as it was opened.
type deviceState struct {
	name  string // "" before it was
	index int
}

// EnsureTUN makes sure that we hold the TUN, and opens it if not. nets are the overlay's networks, former
// those that this node was in before. Where the kernel's TUN does for a lesser path only, the ports are asked
// to follow it.
func (p *Plane) EnsureTUN(nets, former []netip.Prefix) error {
	path := p.path
	err := p.ensureTUN(nets, former)
	if p.path != path {
		p.o.Nudge(kernel.ChangedObjects)
	}
	return err
}

func (p *Plane) ensureTUN(nets, former []netip.Prefix) error {
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
	p.log.Warn("device is gone, making it again", "event", event.DeviceRepaired, "device", p.device.name)
	return p.openDevice(p.device.name)
}

// firstTUN chooses the TUN's name and opens it. A name that turns out to be in
// use by another process, with another network, leaves the next.
func (p *Plane) firstTUN(nets, all []netip.Prefix) error {
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
			return fmt.Errorf("%w: a running process has it with an address in this network: stop flanneld or the "+
				"other weftd", err)
		}
		inUse[name] = true
	}
}

// openDevice opens the TUN by name and notes its number.
func (p *Plane) openDevice(name string) error {
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

// Listen binds the underlay ports of both families to the addresses on the link, and closes that of a family
// without one. Ports that died are opened anew. A vxlan device of the kernel's that has the port gives way if
// it is ours or flannel's, which networks tell.
func (p *Plane) Listen(addr4, addr6 netip.Addr, link string, networks []netip.Prefix) error {
	p.reapLost()
	var faults []error
	for _, f := range []struct {
		six  bool
		addr netip.Addr
	}{{false, addr4}, {true, addr6}} {
		var local netip.AddrPort
		if f.addr.IsValid() {
			local = netip.AddrPortFrom(f.addr, p.o.Port)
		}
		err := p.listen(f.six, local, link)
		if errors.Is(err, unix.EADDRINUSE) && p.freePort(networks) {
			err = p.listen(f.six, local, link)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: is flanneld or another weftd running here?", err)
		}
		faults = append(faults, kernel.LowPort(err))
		if !local.IsValid() {
			p.disinherit(underName(f.six))
		}
	}
	return errors.Join(faults...)
}

// freePort deletes the kernel's vxlan devices that hold the data plane's port, if they are ours or
// flannel's by name and by their addresses: a udp network may have the port that a former vxlan one
// had. It reports whether there is one less.
func (p *Plane) freePort(networks []netip.Prefix) (freed bool) {
	vs, err := p.out.VTEPsOnPort(p.o.Port)
	if err != nil {
		p.log.Warn("which device holds the port is not known", "port", p.o.Port, "error", err)
		return false
	}
	for _, v := range vs {
		if !kernel.IsVTEPName(v.Name) {
			continue
		}
		if err := p.out.Remove(v, networks); err != nil {
			p.log.Warn("the kernel's vxlan device holds the port", "device", v.Name, "port", v.Port, "error", err)
			continue
		}
		p.log.Info("removed the kernel's vxlan device, whose port the data plane takes", "event", event.TakenOver,
			"device", v.Name, "port", v.Port)
		freed = true
	}
	return freed
}

// AddInterest tells the monitor what of the data plane's to look for.
func (p *Plane) AddInterest(i *kernel.Interest) {
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

// pickDevice chooses the TUN's name among the links that there are. A TUN with
// an address in our network is ours from before, or flannel's (then it is adopted); one that has
// our alias and no address yet was left by a crash; else the first free name is for a new
// one. inUse are names that another process turned out to hold.
func pickDevice(ds []kernel.Device, addrs map[int][]netip.Addr, nets []netip.Prefix,
	inUse map[string]bool) string {
	var bare string
	there := make(map[string]bool, len(ds))
	ds = slices.Clone(ds)
	slices.SortFunc(ds, func(a, b kernel.Device) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	for _, d := range ds {
		there[d.Name] = true
		if !kernel.IsTUNName(d.Name) {
			continue
		}
		if inUse[d.Name] || d.Kind != kernel.KindTUN || d.Alias != kernel.Alias && d.Alias != "" {
			continue
		}
		as := addrs[d.Index]
		inside := slices.ContainsFunc(as, func(a netip.Addr) bool {
			return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(a) })
		})
		if inside {
			return d.Name
		}
		lone := !slices.ContainsFunc(as, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() })
		if bare == "" && lone && d.Alias == kernel.Alias {
			bare = d.Name
		}
	}
	if bare != "" {
		return bare
	}
	for n := 0; ; n++ {
		if name := fmt.Sprint(kernel.TUNPrefix, n); !there[name] && !inUse[name] {
			return name
		}
	}
}
