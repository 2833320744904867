package routing

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type addrInfo struct {
	index                                          int
	addr                                           netip.Addr
	deprecated, tentative, failed, dynamic, tempor bool
}

type defaultRoute struct {
	index  int
	six    bool
	metric uint32
}

// reachInfo is the kernel's answer to "how would you reach that address?".
type reachInfo struct {
	index int
	src   netip.Addr
	err   error
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
