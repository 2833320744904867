package lease

import (
	"math/big"
	"net/netip"

	"go4.org/netipx"
)

// lastSubnet returns the base of the last /bits subnet of network.
func lastSubnet(network netip.Prefix, bits int) netip.Addr {
	return netip.PrefixFrom(netipx.PrefixLastIP(network), bits).Masked().Addr()
}

// countSubnets returns how many /bits subnets lie between the bases first and
// last, both included; 0 if last is below first, and at most limit.
func countSubnets(first, last netip.Addr, bits int, limit uint64) uint64 {
	n := new(big.Int).Sub(new(big.Int).SetBytes(last.AsSlice()), new(big.Int).SetBytes(first.AsSlice()))
	n.Rsh(n, uint(last.BitLen()-bits)).Add(n, big.NewInt(1))
	switch {
	case n.Sign() < 0:
		return 0
	case !n.IsUint64():
		return limit
	}
	return min(n.Uint64(), limit)
}
