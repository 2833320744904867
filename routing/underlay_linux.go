package routing

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ChooseUnderlay chooses the underlay interface among those that k has now. The
// error wraps ErrNoUnderlay if none passes.
func ChooseUnderlay(k *Kernel, o UnderlayOptions) (Underlay, error) {
	o.CanReach, o.PublicIP, o.PublicIPv6 = o.CanReach.Unmap(), o.PublicIP.Unmap(), o.PublicIPv6.Unmap()
	l, err := k.listing(o)
	if err != nil {
		return Underlay{}, fmt.Errorf("choose underlay interface: %w", err)
	}
	return choose(l, o)
}

// listing reads what choose needs, and no more: default routes only if no interface is named.
func (k *Kernel) listing(o UnderlayOptions) (listing, error) {
	var l listing
	ds, err := k.devices()
	if err != nil {
		return l, err
	}
	for _, d := range ds {
		l.links = append(l.links, d.info())
	}
	if l.addrs, err = k.addrInfos(); err != nil {
		return l, err
	}
	if o.CanReach.IsValid() {
		l.reach = k.reach(o.CanReach)
	}
	if !o.explicit() {
		if l.defaults, err = k.defaultRoutes(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// underlayListing reads the state of one link and all addresses.
func (k *Kernel) underlayListing(name string) (listing, error) {
	var l listing
	d, err := k.device(name)
	switch {
	case err == nil:
		l.links = []linkInfo{d.info()}
	case !errors.Is(err, errNoLink):
		return l, err
	}
	l.addrs, err = k.addrInfos()
	return l, err
}

func (d device) info() linkInfo {
	return linkInfo{index: d.Index, mtu: d.MTU, name: d.Name, alias: d.Alias, up: d.Up}
}

// addrInfos lists the addresses of all links.
func (k *Kernel) addrInfos() ([]addrInfo, error) {
	as, err := k.addrs()
	if err != nil {
		return nil, err
	}
	var infos []addrInfo
	for _, a := range as {
		if a.IPNet == nil {
			continue
		}
		infos = append(infos, addrInfo{
			index: a.LinkIndex, addr: fromIP(a.IP),
			deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
			tentative:  a.Flags&unix.IFA_F_TENTATIVE != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0,
			failed:     a.Flags&unix.IFA_F_DADFAILED != 0,
			dynamic:    a.Flags&unix.IFA_F_PERMANENT == 0,
			tempor:     a.Flags&unix.IFA_F_TEMPORARY != 0 && a.IP.To4() == nil, // the bit means "secondary" in IPv4
		})
	}
	return infos, nil
}

// reach asks the kernel how it would reach a.
func (k *Kernel) reach(a netip.Addr) reachInfo {
	rs, err := k.h.RouteGet(a.AsSlice())
	switch {
	case err != nil:
		return reachInfo{err: err}
	case len(rs) == 0:
		return reachInfo{err: unix.ENETUNREACH}
	case rs[0].Type == unix.RTN_LOCAL:
		return reachInfo{err: errors.New("it is this host's own address")}
	}
	return reachInfo{index: rs[0].LinkIndex, src: fromIP(rs[0].Src)}
}

// defaultRoutes lists the default routes of the main table, one for each next hop.
func (k *Kernel) defaultRoutes() ([]defaultRoute, error) {
	var ds []defaultRoute
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rs, err := dump(func() ([]netlink.Route, error) { return k.listRoutes(family, netlink.Route{}, 0) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range rs {
			if r.Dst == nil || r.Type != unix.RTN_UNICAST {
				continue
			}
			if bits, _ := r.Dst.Mask.Size(); bits != 0 {
				continue
			}
			d := defaultRoute{six: family == netlink.FAMILY_V6, metric: uint32(r.Priority)}
			for _, hop := range r.MultiPath {
				ds = append(ds, defaultRoute{index: hop.LinkIndex, six: d.six, metric: d.metric})
			}
			if d.index = r.LinkIndex; len(r.MultiPath) == 0 {
				ds = append(ds, d)
			}
		}
	}
	return ds, nil
}
