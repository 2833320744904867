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
	var out []Use
	for _, r := range c.Ranges() {
		var family []netip.Prefix
		for _, s := range taken {
			p := r.Of(s)
			if p.IsValid() {
				family = append(family, p)
			}
		}
		all := countSubnets(r.first, r.last, r.Bits, countMost)
		out = append(out, Use{Network: r.Network, All: all, Taken: min(r.used(family), all)})
	}
	return out
}
