package lease

import (
	"fmt"
	"net/netip"
	"slices"
)

// subnetRange is what one family of a network gives out.
type subnetRange struct {
	network     netip.Prefix
	bits        int // of each subnet
	first, last netip.Addr
}

// ranges returns one range for each family that is on, IPv4 first.
func (c NetworkConfig) ranges() []subnetRange {
	var out []subnetRange
	if c.EnableIPv4 {
		out = append(out, subnetRange{c.Network, c.SubnetLen, c.SubnetMin, c.SubnetMax})
	}
	if c.EnableIPv6 {
		out = append(out, subnetRange{c.IPv6Network, c.IPv6SubnetLen, c.IPv6SubnetMin, c.IPv6SubnetMax})
	}
	return out
}

// unfit says why p is not one of the range's subnets, or "".
func (r subnetRange) unfit(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return fmt.Sprintf("it has no subnet of %s", r.network)
	case p.Bits() != r.bits:
		return fmt.Sprintf("its length is /%d and the network's /%d", p.Bits(), r.bits)
	case p.Addr().Less(r.first) || r.last.Less(p.Addr()):
		return fmt.Sprintf("%s is not from %s to %s", p, r.first, r.last)
	}
	return ""
}

// free returns the first most subnets that overlap none of taken. It takes time
// in the number of taken prefixes, however wide the range or the prefixes are.
func (r subnetRange) free(taken []netip.Prefix, most int) []netip.Prefix {
	slices.SortFunc(taken, comparePrefix)
	var out []netip.Prefix
	at := r.first
	for len(out) < most && !r.last.Less(at) {
		p := netip.PrefixFrom(at, r.bits)
		for len(taken) > 0 && lastAddr(taken[0]).Less(at) {
			taken = taken[1:]
		}
		end := lastAddr(p)
		if len(taken) > 0 && taken[0].Overlaps(p) {
			end = lastAddr(netip.PrefixFrom(taken[0].Addr(), min(taken[0].Bits(), r.bits)).Masked())
		} else {
			out = append(out, p)
		}
		if at = end.Next(); !at.IsValid() {
			break
		}
	}
	return out
}

// outOf is the error of a range without a free subnet.
func (r subnetRange) outOf(records int) error {
	const limit = 1 << 32
	return fmt.Errorf("%w in %s: %d subnets of /%d from %s to %s, none free beside the store's %d records",
		ErrOutOfSubnets, r.network, countSubnets(r.first, r.last, r.bits, limit), r.bits, r.first, r.last, records)
}
