package kernel

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	pfx, addr = netip.MustParsePrefix, netip.MustParseAddr

	compareState = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

	// net4 and net6 are the overlay's networks in tests.
	net4, net6 = pfx("10.5.0.0/16"), pfx("fd00:5::/48")
)

func mac(s string) MAC {
	m, err := ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}
