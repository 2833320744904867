package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// RemoveLeftovers deletes the devices that another backend, of ours or of flannel's, left on this host: those
// of flannel's names and kinds with an address in the networks of c or in a former one, and the idle TAPs of
// path raw, but those in use, which are kept. Their routes and entries go with them. It returns what was
// deleted, and does nothing the second time. Other objects of ours are swept by the backend in use.
func RemoveLeftovers(k *kernel.Kernel, c lease.NetworkConfig, former []netip.Prefix,
	keep []string) (removed []string, err error) {
	ds, err := k.Devices()
	if err != nil {
		return nil, err
	}
	as, err := k.AddrInfos()
	if err != nil {
		return nil, err
	}
	nets := slices.Concat(c.Networks(), former)
	var faults []error
	for _, d := range ds {
		if slices.Contains(keep, d.Name) || !isLeftover(d) {
			continue
		}
		inside := d.IsTAP() || slices.ContainsFunc(as, func(i kernel.AddrInfo) bool {
			return i.Index == d.Index && slices.ContainsFunc(nets, func(n netip.Prefix) bool {
				return n.Contains(i.Addr)
			})
		})
		if !inside {
			continue
		}
		if err := k.DelLink(d.Name); err != nil {
			faults = append(faults, err)
			continue
		}
		removed = append(removed, "link "+d.Name)
	}
	return removed, errors.Join(faults...)
}

// isLeftover reports whether d is what a backend makes: flannel's vxlan device by name, or our
// TUN or TAP by name and mark. A TUN without the mark is a running flanneld's, since flannel's
// do not outlive it.
func isLeftover(d kernel.Device) bool {
	if d.IsTAP() {
		return d.IsIdleTAP()
	}
	t, ok := BuiltIn().device(d)
	return ok && (d.Alias == kernel.Alias || t.Lasting && d.Alias == "")
}

// IsOwnLink reports whether l is a device that weft made or took over: it has a name and a kind that a
// backend gives its devices, and our mark. A device with only one of these is somebody else's.
func IsOwnLink(l netlink.Link) bool {
	d := kernel.DeviceOf(l)
	return d.IsProbe() || d.Alias == kernel.Alias && (d.IsTAP() || IsFlannelLink(l))
}

// IsFlannelLink reports whether l has a name and a kind that flannel gives its devices.
func IsFlannelLink(l netlink.Link) bool {
	_, ok := BuiltIn().device(kernel.DeviceOf(l))
	return ok
}

// FormerGateways returns the addresses of bridges of this host, with the bridge's name before each, that
// are in the network and not in own: pods that were made while the node had another subnet have
// them as their gateway. It changes nothing.
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
