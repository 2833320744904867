package lease_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
)

func parse(t testing.TB, s string) lease.NetworkConfig {
	t.Helper()
	c, err := lease.ParseNetworkConfig([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func subnets(t testing.TB, s string) lease.Subnets {
	t.Helper()
	n, err := lease.ParseSubnets(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pointers are records as a snapshot has them.
func pointers(records ...lease.Record) (out []*lease.Record) {
	for i := range records {
		out = append(out, &records[i])
	}
	return out
}

// record is one of node at addr; node "" has no identity.
func record(t testing.TB, subnet, node, addr string, revision int64) lease.Record {
	t.Helper()
	r := lease.Record{Subnets: subnets(t, subnet), Revision: revision}
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

func words(on bool, values ...any) string {
	if !on {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintln(values...), "\n")
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
