package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"weft/lease"
)

// FormerGateways returns the addresses of bridges of this host, with the bridge's name before each, that
// are in the network and not in own: pods that were made while the node had another subnet have
// them as their gateway. It only looks.
func FormerGateways(network lease.NetworkConfig, own lease.Subnets) ([]string, error) {
	var out []string
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || !within(ip, network, own) {
			continue
		}
		if l, err := netlink.LinkByIndex(a.LinkIndex); err == nil && l.Type() == "bridge" {
			bits, _ := a.Mask.Size()
			out = append(out, fmt.Sprintf("%s %s", l.Attrs().Name, netip.PrefixFrom(ip, bits)))
		}
	}
	slices.Sort(out)
	return out, nil
}

// within reports whether ip is in the network, in a family in which we have a subnet, and not in that.
func within(ip netip.Addr, network lease.NetworkConfig, own lease.Subnets) bool {
	in, ours := network.Network, own.V4
	if ip.Is6() {
		in, ours = network.IPv6Network, own.V6
	}
	return in.IsValid() && in.Contains(ip) && ours.IsValid() && !ours.Contains(ip)
}
