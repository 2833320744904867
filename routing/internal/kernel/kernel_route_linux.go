package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

func (k *Kernel) addrs() ([]netlink.Addr, error) {
	as, err := dump(func() ([]netlink.Addr, error) { return k.h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return as, nil
}

// routes lists the routes by those devices, and those with our protocol number by any device, each once. The
// filters cost the same on a host with a full Internet table as on an empty one.
func (k *Kernel) routes(ds []Device) ([]Route, error) {
	names := map[int]string{}
	var rs []Route
	seen := map[Route]bool{}
	list := func(filter netlink.Route, mask uint64) error {
		l, err := k.listRoutes(filter, mask)
		for _, x := range l {
			if r, ok := k.fromRoute(x, names); ok && !seen[r] {
				seen[r] = true
				rs = append(rs, r)
			}
		}
		return err
	}
	for _, d := range ds {
		names[d.Index] = d.Name
		if err := list(netlink.Route{LinkIndex: d.Index}, netlink.RT_FILTER_OIF); err != nil {
			return nil, err
		}
	}
	if len(ds) == 0 {
		return nil, nil
	}
	return rs, list(netlink.Route{Protocol: RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
}

// listRoutes lists the routes of both families that pass the filter.
func (k *Kernel) listRoutes(filter netlink.Route, mask uint64) (all []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		l, err := dump(func() (rs []netlink.Route, err error) {
			// unlike RouteListFiltered it keeps the routes of an interrupted dump
			err = k.h.RouteListFilteredIter(family, &filter, mask, func(r netlink.Route) bool {
				rs = append(rs, r)
				return true
			})
			// A strict kernel says ENOENT for a family whose main table was never used, and
			// EOPNOTSUPP without IPv6.
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
				err = nil
			}
			return rs, err
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		all = append(all, l...)
	}
	return all, nil
}

// fromRoute converts a unicast route; ok is false for any other. A route with several next hops,
// which we never want, has no Link and no Gateway. names caches link names by index.
func (k *Kernel) fromRoute(r netlink.Route, names map[int]string) (Route, bool) {
	if r.Type != unix.RTN_UNICAST || r.Dst == nil || r.Tos != 0 {
		return Route{}, false
	}
	name, known := names[r.LinkIndex]
	if len(r.MultiPath) > 0 {
		name, known, r.Gw = "", true, nil
	}
	if !known {
		if l, err := k.h.LinkByIndex(r.LinkIndex); err == nil {
			name = l.Attrs().Name
		}
		names[r.LinkIndex] = name
	}
	return Route{
		Dst: fromIPNet(r.Dst), Gateway: fromIP(r.Gw), Link: name,
		Metric: uint32(r.Priority), Scope: uint8(r.Scope), Protocol: uint8(r.Protocol),
		OnLink: r.Flags&unix.RTNH_F_ONLINK != 0, MTU: r.MTU,
	}, true
}

// AddAddr adds an address; one that is there already is no error. IPv6 addresses are usable
// at once: a TUN has no neighbour to detect a duplicate on (RFC 4862 section 5.4).
func (k *Kernel) AddAddr(a Addr) error {
	return k.changeAddr(a, k.h.AddrAdd, unix.EEXIST)
}

// DelAddr deletes an address; one that is gone already is no error.
func (k *Kernel) DelAddr(a Addr) error {
	return k.changeAddr(a, k.h.AddrDel, unix.EADDRNOTAVAIL)
}

func (k *Kernel) changeAddr(a Addr, change func(netlink.Link, *netlink.Addr) error, done unix.Errno) error {
	l, err := k.h.LinkByName(a.Link)
	if err != nil {
		return err
	}
	na := &netlink.Addr{IPNet: netipx.PrefixIPNet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		na.Flags = unix.IFA_F_NODAD
	}
	if err := change(l, na); err != nil && !errors.Is(err, done) {
		return err
	}
	return nil
}

// AddRoute adds a route. If another holds its place, the error says which.
func (k *Kernel) AddRoute(r Route) error {
	nr, err := k.toRoute(r)
	if err != nil {
		return err
	}
	err = k.h.RouteAdd(nr)
	if !errors.Is(err, unix.EEXIST) {
		return coveredGateway(r, err)
	}
	there, _ := k.listRoutes(netlink.Route{}, 0)
	for _, h := range there {
		if have, ok := k.fromRoute(h, map[int]string{}); ok && have.slot() == r.slot() {
			if have == r {
				return nil
			}
			return fmt.Errorf("%w: %v", err, Conflict{Want: r, Have: have})
		}
	}
	return err
}

// ReplaceRoute puts r in the place of the route to the same destination with the
// same metric, so that there is no moment without a route.
func (k *Kernel) ReplaceRoute(r Route) error {
	nr, err := k.toRoute(r)
	if err != nil {
		return err
	}
	err = k.h.RouteReplace(nr)
	if r.OnLink && r.Dst.Addr().Is6() && errors.Is(err, unix.EINVAL) {
		// The old route leads to the gateway by another device, which IPv6 takes for a contradiction: it has
		// to go first.
		if err := k.DelRoute(Route{Dst: r.Dst, Metric: r.Metric}); err != nil {
			return err
		}
		err = k.h.RouteAdd(nr)
	}
	return coveredGateway(r, err)
}

// coveredGateway explains why IPv6 refuses a route whose gateway is said to be on the link: another
// route, not a default one, leads to the gateway by another device (ip6_route_check_nh_onlink).
func coveredGateway(r Route, err error) error {
	if r.OnLink && r.Dst.Addr().Is6() && errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: another route covers %v: delete it, or choose another IPv6Network", err, r.Gateway)
	}
	return err
}

// DelRoute deletes a route; one that is gone already is no error.
func (k *Kernel) DelRoute(r Route) error {
	nr, err := k.toRoute(r)
	if err != nil {
		return err
	}
	if err := k.h.RouteDel(nr); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func (k *Kernel) toRoute(r Route) (*netlink.Route, error) {
	index := 0 // of a route with several next hops
	if r.Link != "" {
		l, err := k.h.LinkByName(r.Link)
		if err != nil {
			return nil, err
		}
		index = l.Attrs().Index
	}
	nr := &netlink.Route{
		LinkIndex: index, Dst: netipx.PrefixIPNet(r.Dst), Priority: int(r.Metric),
		Scope: netlink.Scope(r.Scope), Protocol: netlink.RouteProtocol(r.Protocol),
	}
	if r.Gateway.IsValid() {
		nr.Gw = r.Gateway.AsSlice()
	}
	if r.OnLink {
		nr.Flags = unix.RTNH_F_ONLINK
	}
	// Without the lock IPv6 looks at a route's MTU for its own packets only, not for those
	// that it forwards (ip6_dst_mtu_maybe_forward); IPv4's lock would clear DF instead.
	nr.MTU, nr.MTULock = r.MTU, r.MTU > 0 && r.Dst.Addr().Is6()
	return nr, nil
}

func fromIPNet(n *net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(fromIP(n.IP), bits)
}

// MainRoutes lists the unicast routes of the main table, one for each next hop. names are the links' by
// number.
func (k *Kernel) MainRoutes(names map[int]string) ([]Route, error) {
	l, err := k.listRoutes(netlink.Route{}, 0)
	var rs []Route
	for _, r := range l {
		for _, h := range hopsOf(r) {
			rs = append(rs, Route{Dst: fromIPNet(r.Dst), Metric: uint32(r.Priority), Scope: uint8(r.Scope),
				Protocol: uint8(r.Protocol), Gateway: fromIP(h.Gw), Link: names[h.LinkIndex]})
		}
	}
	return rs, err
}

// DefaultRoute is a default route of the main table, or one of its next hops.
type DefaultRoute struct {
	Index  int
	Six    bool
	Metric uint32
}

// DefaultRoutes lists the default routes of the main table, one for each next hop.
func (k *Kernel) DefaultRoutes() (ds []DefaultRoute, err error) {
	l, err := k.listRoutes(netlink.Route{}, 0)
	for _, r := range l {
		for _, h := range hopsOf(r) {
			if to := fromIPNet(r.Dst); to.Bits() == 0 {
				ds = append(ds, DefaultRoute{Index: h.LinkIndex, Six: to.Addr().Is6(), Metric: uint32(r.Priority)})
			}
		}
	}
	return ds, err
}

// hopsOf are the next hops of a unicast route of the main table; none for any other.
func hopsOf(r netlink.Route) []*netlink.NexthopInfo {
	switch {
	case r.Type != unix.RTN_UNICAST || r.Dst == nil || r.Tos != 0:
		return nil
	case len(r.MultiPath) == 0:
		return []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
	}
	return r.MultiPath
}
