package hostrules

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/lease"
)

// listLinks lists the links of the namespace.
func listLinks() ([]netlink.Link, error) {
	all, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return all, nil
}

// outerRoutes keeps what the routes said, since listing them costs much on a host that has many.
type outerRoutes struct {
	asked    time.Time
	took     time.Duration
	peers    *lease.Record // the first of the set; a set is immutable, so that another has another one
	underlay string
	routes   map[int]bool // links that a route leads by to a peer or to everywhere
	pods     map[int]bool // links that a route leads by to our own subnet
}

// For the same set and underlay, the routes are listed again after routesShare times as long as that took, or
// after routesFresh.
const (
	routesShare = 20
	routesFresh = 30 * time.Second
)

// links returns the sorted names of the links of the underlay's side, by which datagrams to the overlay's
// port may come in: the underlay's link, the loopback, the devices of kinds that no pod has, and the links to
// which the host's own routes to peers, or its default routes, lead. A pod with CAP_NET_RAW can send from any
// address, but its packets come in by a link of the pods' side: one to our own pods is not among them, unless
// it is the underlay. The result is empty if the underlay is not known.
func (o *outerRoutes) links(all []netlink.Link, g Guard, set lease.Set, protocol int) ([]string, error) {
	if !g.guards() || g.Underlay == "" {
		return nil, nil
	}
	index, own := map[int]netlink.Link{}, map[int]bool{}
	for _, l := range all {
		a := l.Attrs()
		index[a.Index], own[a.Index] = l, a.Name == g.Underlay || ofHost(l)
	}
	if err := o.read(g, set, protocol, own); err != nil {
		return nil, err
	}
	names := map[string]bool{g.Underlay: true} // also while it is away
	for _, l := range all {
		a := l.Attrs()
		if a.Name != g.Underlay && (o.pods[a.Index] || !ofHost(l) && !o.routes[a.Index]) {
			continue
		}
		names[a.Name] = true
		if m := index[a.MasterIndex]; m != nil && m.Type() == "vrf" { // what a packet has come in by then
			names[m.Attrs().Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ofHost reports whether a link is of a kind that no pod has.
func ofHost(l netlink.Link) bool {
	return slices.Contains([]string{"device", "bond", "team", "vlan", "vrf"}, l.Type())
}

// read lists the routes if it is time to. The links in own are known already, so that routes by them are not
// compared with the peers, of which there may be thousands.
func (o *outerRoutes) read(g Guard, set lease.Set, protocol int, own map[int]bool) error {
	began := time.Now()
	var first *lease.Record
	if len(set.Peers) > 0 {
		first = &set.Peers[0]
	}
	if o.routes != nil && first == o.peers && g.Underlay == o.underlay &&
		began.Sub(o.asked) < min(routesShare*o.took, routesFresh) {
		return nil
	}
	routes, pods := map[int]bool{}, map[int]bool{}
	subnets := []netip.Prefix{set.Own.V4, set.Own.V6}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		peers := sync.OnceValue(func() []netip.Addr { return sources(set.Peers, family == netlink.FAMILY_V6) })
		rs, err := netlink.RouteListFiltered(family,
			&netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENOENT) {
			continue // a kernel without IPv6
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list routes: %w", err)
		}
		for _, r := range rs {
			if int(r.Protocol) == protocol {
				continue
			}
			dst := routePrefix(r)
			to := routes
			switch {
			case !dst.IsValid() || dst.Bits() == 0:
			case slices.ContainsFunc(subnets, func(p netip.Prefix) bool {
				return p.IsValid() && p.Contains(dst.Addr()) && p.Bits() <= dst.Bits()
			}):
				to = pods
			case own[r.LinkIndex], !anyWithin(dst, peers()):
				continue
			}
			to[r.LinkIndex] = true
			for _, hop := range r.MultiPath {
				to[hop.LinkIndex] = true
			}
		}
	}
	*o = outerRoutes{began, time.Since(began), first, g.Underlay, routes, pods}
	return nil
}

// anyWithin reports whether one of the addresses, which are sorted, is within p.
func anyWithin(p netip.Prefix, as []netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(as, p.Masked().Addr(), netip.Addr.Compare)
	return i < len(as) && p.Contains(as[i])
}
