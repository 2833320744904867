package routing

import (
	"errors"

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
