package hostrules

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// routePrefix returns a route's destination, the zero Prefix for a default route.
func routePrefix(r netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}
