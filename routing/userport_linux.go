package routing

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
)

// freePort deletes the kernel's vxlan devices that hold the data plane's port, if they are ours or
// flannel's by name and by their addresses: a udp network may have the port that a former vxlan one
// had. It reports whether there is one less.
func (u *UDP) freePort() (freed bool) {
	ls, err := dump(func() ([]netlink.Link, error) { return u.k.h.LinkList() })
	if err != nil {
		u.log.Warn("which device holds the port is not known", "port", u.cfg.Options.Port, "error", err)
		return false
	}
	for _, l := range ls {
		x, ok := l.(*netlink.Vxlan)
		if !ok || x.Port != int(u.cfg.Options.Port) || !isVTEPName(x.Name) {
			continue
		}
		addrs, err := u.k.linkAddrs(x.Name)
		why := ""
		if err == nil {
			why = vtepStrange(fromVXLAN(x), addrs, u.networks())
		}
		if err == nil && why != "" {
			err = errors.New(why)
		}
		if err == nil {
			err = u.k.delLink(x.Name)
		}
		if err != nil {
			u.log.Warn("the kernel's vxlan device holds the port", "device", x.Name, "port", x.Port, "error", err)
			continue
		}
		u.log.Info("removed the kernel's vxlan device, whose port the data plane takes", "device", x.Name, "port", x.Port)
		freed = true
	}
	return freed
}

// openUserVTEP makes the backend that carries vxlan in user space; why says why the kernel does not.
func openUserVTEP(c BackendConfig, v vxlan, why string) (Backend, error) {
	if v.o.GBP || v.o.Learning {
		c.Logger.Warn("GBP and Learning are the kernel's: in user space they have no effect")
	}
	for _, six := range []bool{false, true} {
		mac := vtepMAC(c.Node, six, v.o.VNI, v.o.MACPrefix)
		if six {
			v.mac6 = mac
		} else {
			v.mac4 = mac
		}
	}
	way := userVTEP{v, why}
	u, err := NewUDP(UDPConfig{
		Kernel: c.Kernel, Network: c.Network, Options: way.carrierOptions(), Workers: c.Workers, Former: c.Former,
		Underlay: c.Underlay, UnderlayOptions: c.UnderlayOptions, UnderlayChanged: c.UnderlayChanged,
		Logger: c.Logger, carried: way,
	})
	if err != nil {
		return nil, err // and no *UDP in the interface
	}
	return u, nil
}

// inUserSpace says whether vxlan is to be carried in user space, and if it is for want of the
// kernel's, why. A device that is there proves that the kernel has vxlan.
func (k *Kernel) inUserSpace(o VXLANOptions) (yes bool, why string, err error) {
	switch o.Userspace {
	case "always":
		return true, "", nil
	case "never":
		return false, "", nil
	}
	if slices.ContainsFunc([]bool{false, true}, func(six bool) bool { _, err := k.vtep(vtepName(six, o.VNI)); return err == nil }) {
		return false, "", nil
	}
	err = k.ProbeVXLAN()
	if errors.Is(err, ErrNoVXLAN) {
		return true, err.Error(), nil
	}
	if err != nil {
		return false, "", err
	}
	return false, "", nil
}
