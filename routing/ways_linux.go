package routing

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/lease"
)

// Displaced finds those of addrs that the overlay of c cuts this host off from, as things
// are now. It lists routes only if one of addrs is within the overlay.
func (k *Kernel) Displaced(c lease.NetworkConfig, addrs []netip.Addr) ([]Displaced, error) {
	addrs = inside(networks(c), addrs)
	if len(addrs) == 0 {
		return nil, nil
	}
	w, err := k.ways()
	if err != nil {
		return nil, err
	}
	return w.Displaced(networks(c), addrs), nil
}

// ways lists what Ways is made from.
func (k *Kernel) ways() (Ways, error) {
	ds, err := k.devices()
	if err != nil {
		return Ways{}, err
	}
	as, err := k.addrInfos()
	if err != nil {
		return Ways{}, err
	}
	names := make(map[int]string, len(ds))
	for _, d := range ds {
		names[d.Index] = d.Name
	}
	var rs []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		l, err := dump(func() ([]netlink.Route, error) { return k.listRoutes(family, netlink.Route{}, 0) })
		if err != nil {
			return Ways{}, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range l {
			rs = append(rs, hops(r, names)...)
		}
	}
	return newWays(ds, as, rs), nil
}

// hops converts a unicast route of the main table, one Route for each next hop; none for any other.
func hops(r netlink.Route, names map[int]string) []Route {
	if r.Type != unix.RTN_UNICAST || r.Dst == nil || r.Tos != 0 {
		return nil
	}
	one := Route{Dst: fromIPNet(r.Dst), Metric: uint32(r.Priority), Scope: uint8(r.Scope), Protocol: uint8(r.Protocol)}
	if len(r.MultiPath) == 0 {
		one.Gateway, one.Link = fromIP(r.Gw), names[r.LinkIndex]
		return []Route{one}
	}
	var all []Route
	for _, h := range r.MultiPath {
		one.Gateway, one.Link = fromIP(h.Gw), names[h.LinkIndex]
		all = append(all, one)
	}
	return all
}
