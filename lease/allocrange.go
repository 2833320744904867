package lease

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"
)

// countMost is the most subnets that are counted.
const countMost = 1 << 32

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

// all is every address of the range's subnets.
func (r subnetRange) all() netipx.IPRange {
	return netipx.IPRangeFrom(r.first, netipx.PrefixLastIP(netip.PrefixFrom(r.last, r.bits)))
}

// whole is p, or the subnet that a longer one is in.
func (r subnetRange) whole(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), min(p.Bits(), r.bits)).Masked()
}

// free returns the first most subnets that overlap none of taken.
func (r subnetRange) free(taken []netip.Prefix, most int) (out []netip.Prefix) {
	var b netipx.IPSetBuilder
	b.AddRange(r.all())
	for _, p := range taken {
		b.RemovePrefix(r.whole(p))
	}
	set, _ := b.IPSet() // a range and prefixes that are valid are no fault
	for _, g := range set.Ranges() {
		for at := g.From(); len(out) < most && at.IsValid() && !g.To().Less(at); {
			p := netip.PrefixFrom(at, r.bits)
			out, at = append(out, p), netipx.PrefixLastIP(p).Next()
		}
	}
	return out
}

// used counts the subnets that taken leaves no room for.
func (r subnetRange) used(taken []netip.Prefix) (n uint64) {
	var b, all netipx.IPSetBuilder
	all.AddRange(r.all())
	for _, p := range taken {
		b.AddPrefix(r.whole(p))
	}
	set, _ := all.IPSet()
	b.Intersect(set)
	set, _ = b.IPSet()
	for _, g := range set.Ranges() {
		n += countSubnets(g.From(), r.whole(netip.PrefixFrom(g.To(), r.bits)).Addr(), r.bits, countMost)
	}
	return n
}

// outOf is the error of a range without a free subnet.
func (r subnetRange) outOf(records int) error {
	return fmt.Errorf("%w in %s: %d subnets of /%d from %s to %s, none free beside the store's %d records",
		ErrOutOfSubnets, r.network, countSubnets(r.first, r.last, r.bits, countMost), r.bits, r.first,
		r.last, records)
}
