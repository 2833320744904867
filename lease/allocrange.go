package lease

import (
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"
)

// ErrOutOfSubnets means that the network has no free subnet.
var ErrOutOfSubnets = errors.New("out of subnets")

// countMost is the most subnets that are counted.
const countMost = 1 << 32

// Range is what one family of a network gives out.
type Range struct {
	Network     netip.Prefix
	Bits        int // of each subnet
	first, last netip.Addr
}

// Of is the prefix of s in the range's family.
func (r Range) Of(s Subnets) netip.Prefix {
	if r.Network.Addr().Is6() {
		return s.V6
	}
	return s.V4
}

// Ranges returns one range for each family that is on, IPv4 first.
func (c NetworkConfig) Ranges() []Range {
	var out []Range
	if c.EnableIPv4 {
		out = append(out, Range{c.Network, c.SubnetLen, c.SubnetMin, c.SubnetMax})
	}
	if c.EnableIPv6 {
		out = append(out, Range{c.IPv6Network, c.IPv6SubnetLen, c.IPv6SubnetMin, c.IPv6SubnetMax})
	}
	return out
}

// Unfit says why p is not one of the range's subnets, or "".
func (r Range) Unfit(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return fmt.Sprintf("it has no subnet of %s", r.Network)
	case p.Bits() != r.Bits:
		return fmt.Sprintf("its length is /%d and the network's /%d", p.Bits(), r.Bits)
	case p.Addr().Less(r.first) || r.last.Less(p.Addr()):
		return fmt.Sprintf("%s is not from %s to %s", p, r.first, r.last)
	}
	return ""
}

// all is every address of the range's subnets.
func (r Range) all() netipx.IPRange {
	return netipx.IPRangeFrom(r.first, netipx.PrefixLastIP(netip.PrefixFrom(r.last, r.Bits)))
}

// whole is p, or the subnet that a longer one is in.
func (r Range) whole(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), min(p.Bits(), r.Bits)).Masked()
}

// Free returns the first most subnets that overlap none of taken.
func (r Range) Free(taken []netip.Prefix, most int) (out []netip.Prefix) {
	var b netipx.IPSetBuilder
	b.AddRange(r.all())
	for _, p := range taken {
		b.RemovePrefix(r.whole(p))
	}
	set, _ := b.IPSet() // a range and prefixes that are valid are no fault
	for _, g := range set.Ranges() {
		for at := g.From(); len(out) < most && at.IsValid() && !g.To().Less(at); {
			p := netip.PrefixFrom(at, r.Bits)
			out, at = append(out, p), netipx.PrefixLastIP(p).Next()
		}
	}
	return out
}

// used counts the subnets that taken leaves no room for.
func (r Range) used(taken []netip.Prefix) (n uint64) {
	var b, all netipx.IPSetBuilder
	all.AddRange(r.all())
	for _, p := range taken {
		b.AddPrefix(r.whole(p))
	}
	set, _ := all.IPSet()
	b.Intersect(set)
	set, _ = b.IPSet()
	for _, g := range set.Ranges() {
		n += countSubnets(g.From(), r.whole(netip.PrefixFrom(g.To(), r.Bits)).Addr(), r.Bits, countMost)
	}
	return n
}

// OutOf is the error of a range without a free subnet.
func (r Range) OutOf(records int) error {
	return fmt.Errorf("%w in %s: %d subnets of /%d from %s to %s, none free beside the store's %d records",
		ErrOutOfSubnets, r.Network, countSubnets(r.first, r.last, r.Bits, countMost), r.Bits, r.first,
		r.last, records)
}
