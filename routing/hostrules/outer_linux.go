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

// outerLinks finds the links of the underlay's side, by which datagrams to the overlay's port may come in. A
// pod with CAP_NET_RAW can send from any address, but its packets come in by a link of the pods' side.
type outerLinks struct {
	asked    time.Time // when routes was read
	peers    *lease.Record
	underlay string
	routes   map[int]bool // links that a route leads by to a peer or to everywhere
	pods     map[int]bool // links that a route leads by to our own subnet
}

// routesFresh is how long a listing of the routes is used before they are listed again, which costs work for
// each peer.
const routesFresh = 30 * time.Second

// links returns the sorted names of the underlay's link, the loopback, the devices of kinds that no pod has,
// and the links to which the host's own routes to peers, or its default routes, lead. A link to our own pods
// is not among them, unless it is the underlay. The result is empty if the underlay is not known.
func (o *outerLinks) links(g Guard, set lease.Set, protocol int) ([]string, error) {
	if !g.guards() || g.Underlay == "" {
		return nil, nil
	}
	all, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names, index, own := map[string]bool{}, map[int]netlink.Link{}, map[int]bool{}
	for _, l := range all {
		a := l.Attrs()
		index[a.Index], own[a.Index] = l, a.Name == g.Underlay || ofHost(l)
	}
	if err := o.find(g, set, protocol, own); err != nil {
		return nil, err
	}
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
	if !names[g.Underlay] { // it is away
		names[g.Underlay] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ofHost reports whether a link is of a kind that no pod has.
func ofHost(l netlink.Link) bool {
	return slices.Contains([]string{"device", "bond", "team", "vlan", "vrf"}, l.Type())
}

// find reads the routes if the set or the underlay is not the same as last time, or if routesFresh has
// passed. The links in own are known already, so that routes by them are not compared with the peers, of
// which there may be thousands.
func (o *outerLinks) find(g Guard, set lease.Set, protocol int, own map[int]bool) error {
	var first *lease.Record
	if len(set.Peers) > 0 {
		first = &set.Peers[0] // a set is immutable, so that another has other records
	}
	if o.routes != nil && first == o.peers && o.underlay == g.Underlay && time.Since(o.asked) < routesFresh {
		return nil
	}
	subnets := []netip.Prefix{set.Own.V4, set.Own.V6}
	routes, pods := map[int]bool{}, map[int]bool{}
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
	o.routes, o.pods, o.peers, o.underlay, o.asked = routes, pods, first, g.Underlay, time.Now()
	return nil
}

// anyWithin reports whether one of the addresses, which are sorted, is within p.
func anyWithin(p netip.Prefix, as []netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(as, p.Masked().Addr(), netip.Addr.Compare)
	return i < len(as) && p.Contains(as[i])
}
