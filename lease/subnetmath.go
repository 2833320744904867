package lease

import "net/netip"

// nextSubnet returns a plus the size of one /bits subnet, and false past the end
// of the address space. bits is 1 to a.BitLen().
func nextSubnet(a netip.Addr, bits int) (netip.Addr, bool) {
	b := a.AsSlice()
	carry := 1 << (7 - (bits-1)%8)
	for i := (bits - 1) / 8; i >= 0 && carry > 0; i-- {
		sum := int(b[i]) + carry
		b[i], carry = byte(sum), sum>>8
	}
	next, _ := netip.AddrFromSlice(b)
	return next, carry == 0
}

// nthSubnet returns the base of subnet n of network; n is small.
func nthSubnet(network netip.Prefix, bits, n int) netip.Addr {
	a := network.Addr()
	for range n {
		a, _ = nextSubnet(a, bits)
	}
	return a
}

// lastSubnet returns the base of the last /bits subnet of network.
func lastSubnet(network netip.Prefix, bits int) netip.Addr {
	return setBits(network.Addr(), network.Bits(), bits)
}

// lastAddr returns the highest address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	return setBits(p.Addr(), p.Bits(), p.Addr().BitLen())
}

// setBits returns a with the bits from and below to, counted from the left, set.
func setBits(a netip.Addr, from, to int) netip.Addr {
	b := a.AsSlice()
	for i := from; i < to; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// countSubnets returns how many /bits subnets lie between the bases first and
// last, both included; 0 if last is below first, and at most limit.
func countSubnets(first, last netip.Addr, bits int, limit uint64) uint64 {
	if last.Less(first) {
		return 0
	}
	lo, hi := first.AsSlice(), last.AsSlice()
	for i, borrow := len(lo)-1, 0; i >= 0; i-- { // hi -= lo
		d := int(hi[i]) - int(lo[i]) - borrow
		hi[i], borrow = byte(d), 0
		if d < 0 {
			borrow = 1
		}
	}
	var n uint64
	for i := range bits {
		if n >= limit {
			return limit
		}
		n = n<<1 | uint64(hi[i/8]>>(7-i%8)&1)
	}
	return min(n+1, limit)
}
