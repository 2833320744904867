// Package gateway manages the addresses that the pods' bridge has as their gateway, when the node's
// subnet changes.
//
// Plugin bridge gives the bridge its address with the first pod, and refuses every pod with another
// gateway. To remove the old address would cut off the pods that have it as their gateway. So the
// bridge has both until the last of these pods is gone.
package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Node says what the node's subnets are.
type Node struct {
	// Networks are the overlay's, Subnets the node's, masked, at most one of each family.
	Networks, Subnets []netip.Prefix
}

// Of returns the gateway in a subnet: its first address with the subnet's length, as host-local chooses it.
func Of(subnet netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits())
}

// former reports whether a is the gateway of a subnet of the network that is not the node's.
func (n Node) former(a netip.Prefix) bool {
	if !slices.ContainsFunc(n.Networks, func(p netip.Prefix) bool {
		return p.Contains(a.Addr()) && p.Bits() <= a.Bits()
	}) {
		return false
	}
	sameFamily := func(s netip.Prefix) bool { return s.Addr().Is4() == a.Addr().Is4() }
	i := slices.IndexFunc(n.Subnets, sameFamily)
	return i >= 0 && a.Masked() != n.Subnets[i] && a.Bits() == n.Subnets[i].Bits() && a == Of(a.Masked())
}

// Add gives the bridge the gateway of the node's IPv4 subnet, if it has that of a former one. Plugin
// bridge reads only the first IPv4 address in the kernel's order, so the new one has to come before
// the old. It does because it has a narrower scope. IPv6 needs no Add: there plugin bridge finds its own
// address among the others. A bridge that does not exist yet has no former gateway.
func (n Node) Add(bridge string) error {
	l, have, err := addresses(bridge)
	if err != nil || l == nil || !slices.ContainsFunc(have, func(a address) bool {
		return a.Addr().Is4() && n.former(a.Prefix)
	}) {
		return err
	}
	for _, s := range n.Subnets {
		if gw := Of(s); s.Addr().Is4() && !slices.ContainsFunc(have, func(a address) bool {
			return a.Prefix == gw
		}) {
			a := &netlink.Addr{IPNet: &net.IPNet{IP: gw.Addr().AsSlice(),
				Mask: net.CIDRMask(gw.Bits(), gw.Addr().BitLen())}, Scope: unix.RT_SCOPE_LINK}
			if err := netlink.AddrAdd(l, a); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("give %s the address %s beside that of a former subnet: %w", bridge, gw, err)
			}
		}
	}
	return nil
}

// Retire removes from the bridge the gateways of those former subnets in which nobody has an address
// any more; inUse says whether anybody has.
func (n Node) Retire(bridge string, inUse func(subnet netip.Prefix) bool) error {
	l, have, err := addresses(bridge)
	if err != nil || l == nil {
		return err
	}
	var faults []error
	for _, a := range have {
		if n.former(a.Prefix) && !inUse(a.Masked()) {
			if err := netlink.AddrDel(l, a.link); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				faults = append(faults, fmt.Errorf("take the address %s of a former subnet from %s: %w", a.Prefix,
					bridge, err))
			}
		}
	}
	return errors.Join(faults...)
}

// address is an address of a link.
type address struct {
	netip.Prefix
	link *netlink.Addr
}

// addresses returns the bridge and its addresses; the link is nil if there is no bridge of that name.
func addresses(bridge string) (netlink.Link, []address, error) {
	l, err := netlink.LinkByName(bridge)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", bridge, err)
	}
	if _, ok := l.(*netlink.Bridge); !ok {
		return nil, nil, nil // and plugin bridge says so
	}
	list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, nil, fmt.Errorf("addresses of %s: %w", bridge, err)
	}
	var out []address
	for i := range list {
		ip, ok := netip.AddrFromSlice(list[i].IP)
		bits, _ := list[i].Mask.Size()
		if ok {
			out = append(out, address{netip.PrefixFrom(ip.Unmap(), bits), &list[i]})
		}
	}
	return l, out, nil
}
