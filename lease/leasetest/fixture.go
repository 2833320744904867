package leasetest

import (
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
)

// Config is a network configuration that parses.
func Config(t testing.TB, s string) lease.NetworkConfig {
	t.Helper()
	c, err := lease.ParseNetworkConfig([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Subnets are those that s names.
func Subnets(t testing.TB, s string) lease.Subnets {
	t.Helper()
	n, err := lease.ParseSubnets(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Pointers are records as a snapshot has them.
func Pointers(records ...lease.Record) (out []*lease.Record) {
	for i := range records {
		out = append(out, &records[i])
	}
	return out
}

// Record is one of node at addr; node "" has no identity.
func Record(t testing.TB, subnet, node, addr string, revision int64) lease.Record {
	t.Helper()
	r := lease.Record{Subnets: Subnets(t, subnet), Revision: revision}
	for part := range strings.SplitSeq(addr, ",") {
		if a := netip.MustParseAddr(part); a.Is4() {
			r.PublicIP = a
		} else {
			r.PublicIPv6 = a
		}
	}
	if node != "" {
		r.Weft = &lease.Weft{Node: node}
	}
	return r
}
