package routing

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weft/routing/internal/kernel"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func mac(s string) kernel.MAC {
	m, err := kernel.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

var compareState = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// net4 and net6 are the overlay's networks in tests.
var net4, net6 = pfx("10.5.0.0/16"), pfx("fd00:5::/48")
