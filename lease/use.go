package lease

import "net/netip"

// Use counts the subnets of one family's range.
type Use struct {
	Network netip.Prefix
	// All is how many subnets the range has, at most 2^32. Taken is how many of them are not free.
	All, Taken uint64
}

// Percent is the part that is taken, rounded down: 100 only if none is free.
func (u Use) Percent() int {
	if u.All == 0 {
		return 100
	}
	return int(100 * u.Taken / u.All)
}

// Use counts the subnets that taken leaves no room for, for each family that is on, IPv4 first.
func (c NetworkConfig) Use(taken []Subnets) []Use {
	const limit = 1 << 32
	var out []Use
	for _, r := range c.ranges() {
		u := Use{Network: r.network, All: countSubnets(r.first, r.last, r.bits, limit)}
		seen := map[netip.Prefix]bool{}
		for _, s := range taken {
			p := s.V4
			if r.network.Addr().Is6() {
				p = s.V6
			}
			if p.IsValid() && p.Bits() <= r.bits { // a shorter one than usual takes several
				first, last := laterOf(p.Masked().Addr(), r.first), earlierOf(netip.PrefixFrom(lastAddr(p), r.bits).Masked().Addr(), r.last)
				if q := netip.PrefixFrom(first, p.Bits()); !seen[q] {
					seen[q] = true
					u.Taken += countSubnets(first, last, r.bits, limit)
				}
			} else if p.IsValid() { // a longer one spoils the one that it is in
				q := netip.PrefixFrom(p.Addr(), r.bits).Masked()
				if !seen[q] && !q.Addr().Less(r.first) && !r.last.Less(q.Addr()) {
					seen[q] = true
					u.Taken++
				}
			}
		}
		u.Taken = min(u.Taken, u.All)
		out = append(out, u)
	}
	return out
}

func laterOf(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlierOf(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}
