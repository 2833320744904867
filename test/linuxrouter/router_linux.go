package linuxrouter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

// Protocol marks the routes of this program ("proto 120" in ip route).
const Protocol = 120

// Router programs the routes of this network namespace's main table.
type Router struct {
	// Handle is netlink's, of the namespace to work in.
	Handle *netlink.Handle
}

var _ routecontrol.Programmer = Router{}

// Open returns the router of the calling thread's namespace. The caller closes it.
func Open() (Router, error) {
	h, err := netlink.NewHandle()
	return Router{Handle: h}, err
}

// Close frees the handle.
func (r Router) Close() { r.Handle.Close() }

// Program implements routecontrol.Programmer. Routes that others made are left alone, and are a reason. What
// the kernel took is in place, so that nothing is ever pending.
func (r Router) Program(_ context.Context, want []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	faults := map[netip.Prefix]error{}
	there, err := r.Handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("this router's routes cannot be read: %w", err)
	}
	have := map[netip.Prefix]netlink.Route{}
	for _, x := range there {
		if p, ok := prefixOf(x.Dst); ok {
			if old, twice := have[p]; !twice || old.Protocol == Protocol { // somebody else's counts
				have[p] = x
			}
		}
	}
	for _, w := range want {
		x, known := have[w.Subnet]
		delete(have, w.Subnet)
		switch hop, _ := netip.AddrFromSlice(x.Gw); {
		case known && x.Protocol != Protocol:
			faults[w.Subnet] = fmt.Errorf("this router has a route of its own to %v, of protocol %v", w.Subnet,
				x.Protocol)
		case known && hop.Unmap() == w.NextHop:
		default:
			route := &netlink.Route{Dst: ipNet(w.Subnet), Gw: w.NextHop.AsSlice(), Protocol: Protocol,
				Table: unix.RT_TABLE_MAIN}
			if err := r.Handle.RouteReplace(route); errors.Is(err, unix.ENETUNREACH) ||
				errors.Is(err, unix.EHOSTUNREACH) {
				faults[w.Subnet] = fmt.Errorf("this router has no link with %v", w.NextHop)
			} else if err != nil {
				faults[w.Subnet] = fmt.Errorf("route to %v by %v: %w", w.Subnet, w.NextHop, err)
			}
		}
	}
	for p, x := range have {
		if x.Protocol != Protocol || keep {
			continue
		}
		if err := r.Handle.RouteDel(&x); err != nil && !errors.Is(err, unix.ESRCH) {
			faults[p] = fmt.Errorf("route to %v is not wanted any more, and stays: %w", p, err)
		}
	}
	return faults, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits), ok
}
