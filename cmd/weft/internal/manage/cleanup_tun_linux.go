package manage

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing"
)

// cleanTUNs removes our TUNs and TAPs that no process has open, with the routes by them. No packet passes
// one, and no flannel adopts one. A flanneld of type udp that has started already found the route to the
// network taken by ours and made none, so its device gets the route.
func (f *cleanupFlags) cleanTUNs(c *cleaned) error {
	all, err := links()
	faults := []error{err}
	for _, l := range all {
		if !isIdleTUN(l) {
			continue
		}
		faults = append(faults, f.handOnRoutes(c, l, all))
		what := fmt.Sprintf("link %s (%s) without a weftd", l.Attrs().Name, l.Type())
		faults = append(faults, f.do(c, what, func() error { return netlink.LinkDel(l) }, unix.ENODEV))
	}
	return errors.Join(faults...)
}

// isIdleTUN reports whether l is a TUN or TAP of ours that no process has open.
func isIdleTUN(l netlink.Link) bool { return isOurs(l) && isTUN(l) && !isOpen(l) }

// isOurs reports whether l is a device of weft's, or a TUN with weft's alias that somebody renamed and no
// process has open.
func isOurs(l netlink.Link) bool {
	return routing.IsOwnLink(l) || l.Attrs().Alias == "weft" && isTUN(l) && !isOpen(l)
}

// isOpen reports whether a process has the TUN or TAP open.
func isOpen(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 }

func isTUN(l netlink.Link) bool {
	_, ok := l.(*netlink.Tuntap)
	return ok
}

// handOnRoutes gives those of our routes by the device from to a flanneld's TUN that has an address within
// them.
func (f *cleanupFlags) handOnRoutes(c *cleaned, from netlink.Link, links []netlink.Link) error {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, // flannel's udp has no IPv6
		&netlink.Route{LinkIndex: from.Attrs().Index, Protocol: routing.RouteProtocol},
		netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list routes of %s: %w", from.Attrs().Name, err)
	}
	var faults []error
	for _, r := range routes {
		i := slices.IndexFunc(links, func(l netlink.Link) bool {
			return isTUN(l) && isOpen(l) && routing.IsFlannelLink(l) && !routing.IsOwnLink(l) && hasAddressIn(l, r.Dst)
		})
		if i < 0 {
			continue
		}
		to := netlink.Route{LinkIndex: links[i].Attrs().Index, Dst: r.Dst}
		faults = append(faults, f.do(c, fmt.Sprintf("route %s, which %s gets", routeText(r), links[i].Attrs().Name),
			func() error { return netlink.RouteReplace(&to) }))
	}
	return errors.Join(faults...)
}

func hasAddressIn(l netlink.Link, network *net.IPNet) bool {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
	return err == nil && slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return network != nil && network.Contains(a.IP)
	})
}

// carrying reports whether a process has a TUN or TAP open that is ours and no other network's. Its control
// socket may be out of sight here, as that of a weftd in flannel's manifest is.
func (f *cleanupFlags) carrying() (bool, error) {
	all, err := links()
	return slices.ContainsFunc(all, func(l netlink.Link) bool {
		addressed, ours := f.addresses(l)
		return routing.IsOwnLink(l) && isTUN(l) && isOpen(l) && (ours || !addressed)
	}), err
}
