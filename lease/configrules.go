package lease

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"
)

// family holds the numbers in which the two address families differ, so that
// one code path serves both.
type family struct {
	name, prefix, example string
	maxLen                int // the longest SubnetLen, in bits
	maxNet                int // the longest network for which SubnetLen may be left out
	usual, usualNet       int // SubnetLen is usual if the network is at most usualNet long
}

// The numbers are flannel's: four subnets at least, and two host addresses in each.
var (
	family4 = family{name: "IPv4", prefix: "", example: "10.244.0.0/16", maxLen: 30, maxNet: 28, usual: 24,
		usualNet: 22}
	family6 = family{name: "IPv6", prefix: "IPv6", example: "fd00:244::/48", maxLen: 126, maxNet: 124, usual: 64,
		usualNet: 62}
)

// is reports whether a is of the family; an IPv4-mapped IPv6 address is of neither.
func (f family) is(a netip.Addr) bool {
	if f.prefix == "" {
		return a.Is4()
	}
	return a.Is6() && !a.Is4In6()
}

// rules fills in defaults and checks each value against the others. A value
// already at fault is not checked again.
func (p *configParser) rules(in familyRaw, f family) familyRaw {
	netKey, lenKey := f.prefix+"Network", f.prefix+"SubnetLen"
	if !p.bad[netKey] && in.network.Bits() <= 0 { // missing, or the whole address space
		got := "missing"
		if in.network.IsValid() {
			got = in.network.String()
		}
		p.fault(netKey, got, fmt.Sprintf("the %s network of all subnets, such as %q", f.name, f.example))
	}
	if !p.bad[netKey] && unusable(in.network) {
		p.fault(netKey, in.network.String(), fmt.Sprintf("addresses that a host may send to others, such as %q: "+
			"not the loopback, multicast, link-local or unspecified ones", f.example))
	}
	if p.bad[netKey] {
		p.withoutNetwork(in, f)
		return in
	}
	if !p.bad[lenKey] {
		in.bits = p.subnetLen(in, f)
	}
	if p.bad[lenKey] || p.bad[netKey] {
		p.inside(in.network, in.min, f, "SubnetMin")
		p.inside(in.network, in.max, f, "SubnetMax")
		return in
	}
	in.min = p.bound(in, in.min, f, "SubnetMin",
		netipx.PrefixLastIP(netip.PrefixFrom(in.network.Addr(), in.bits)).Next())
	in.max = p.bound(in, in.max, f, "SubnetMax", lastSubnet(in.network, in.bits))
	p.ordered(in, f)
	return in
}

// unusable reports whether no address of n can be a pod's.
func unusable(n netip.Prefix) bool {
	a := n.Addr()
	return a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() && a.Is6() || a.Is4() && a.As4()[0] == 0
}

// withoutNetwork finds the faults that show although the network is not known.
func (p *configParser) withoutNetwork(in familyRaw, f family) {
	const least = 1 + 2 // four subnets in the largest network that there is
	lenKey := f.prefix + "SubnetLen"
	if !p.bad[lenKey] && in.bits != 0 && (in.bits < least || in.bits > f.maxLen) {
		p.fault(lenKey, fmt.Sprint(in.bits), fmt.Sprintf("%d to %d", least, f.maxLen))
	}
	if !p.bad[lenKey] && in.bits != 0 {
		p.aligned(in, in.min, f, "SubnetMin")
		p.aligned(in, in.max, f, "SubnetMax")
	}
	p.ordered(in, f)
}

// ordered checks that the range does not end before it begins.
func (p *configParser) ordered(in familyRaw, f family) {
	minKey, maxKey := f.prefix+"SubnetMin", f.prefix+"SubnetMax"
	known := in.min.IsValid() && in.max.IsValid() && !p.bad[minKey] && !p.bad[maxKey]
	if known && in.min.Compare(in.max) > 0 {
		p.fault(minKey, in.min.String(), fmt.Sprintf("an address not above %s, which is %s", maxKey, in.max))
	}
}

func (p *configParser) subnetLen(in familyRaw, f family) int {
	bits, least := in.bits, in.network.Bits()+2
	switch {
	case bits == 0 && in.network.Bits() > f.maxNet:
		p.fault(f.prefix+"Network", in.network.String(),
			fmt.Sprintf("a network of length /%d or shorter, for four subnets", f.maxNet))
	case bits == 0 && in.network.Bits() <= f.usualNet:
		return f.usual
	case bits == 0:
		return least
	case bits > f.maxLen || bits < least:
		want := fmt.Sprintf("%d to %d, so that %s holds at least four subnets", least, f.maxLen, in.network)
		if least > f.maxLen {
			want = fmt.Sprintf("a shorter %sNetwork than %s, which cannot hold four subnets", f.prefix, in.network)
		}
		p.fault(f.prefix+"SubnetLen", fmt.Sprint(bits), want)
	}
	return bits
}

// bound checks one end of the range, or returns its default.
func (p *configParser) bound(in familyRaw, a netip.Addr, f family, name string,
	absent netip.Addr) netip.Addr {
	if !a.IsValid() {
		return absent
	}
	if p.inside(in.network, a, f, name) {
		p.aligned(in, a, f, name)
	}
	return a
}

// aligned checks that a, if it is given, begins a subnet.
func (p *configParser) aligned(in familyRaw, a netip.Addr, f family, name string) {
	if !a.IsValid() {
		return
	}
	if base := netip.PrefixFrom(a, in.bits).Masked().Addr(); base != a {
		p.fault(f.prefix+name, a.String(), fmt.Sprintf("the base address of a /%d subnet, such as %s",
			in.bits, base))
	}
}

func (p *configParser) inside(network netip.Prefix, a netip.Addr, f family, name string) bool {
	if !a.IsValid() || network.Contains(a) {
		return true
	}
	p.fault(f.prefix+name, a.String(), fmt.Sprintf("an address inside %sNetwork %s", f.prefix, network))
	return false
}
