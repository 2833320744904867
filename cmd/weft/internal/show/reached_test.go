package show

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// For peers that the kernel reaches, each subnet is shown with how it is reached, and why not in a better
// way.
func TestPeersShowTheirWays(t *testing.T) {
	var b strings.Builder
	err := printPeers(&b, control.Status{}, control.Peers{Peers: []control.Peer{
		{Name: "b", Subnets: []netip.Prefix{prefix("10.42.2.0/24"), prefix("fd00:2::/64")},
			Address: addr("10.0.0.2"), Path: "kernel", MTU: 1430, Reached: []control.Reached{
				{Subnet: prefix("10.42.2.0/24"), How: "route", Via: addr("10.0.0.2")},
				{Subnet: prefix("fd00:2::/64"), How: "tunnel", Via: addr("2001:db8::2"),
					Reason: "it is behind a router"}}},
		{Name: "c", Subnets: []netip.Prefix{prefix("10.42.3.0/24")}, Address: addr("10.0.0.3"), Path: "kernel",
			MTU: 1430, Reached: []control.Reached{
				{Subnet: prefix("10.42.3.0/24"), How: "skipped", Reason: "its VNI is \x1b7"}}},
	}}, time.Now())
	const want = `PEER  SUBNETS                    ADDRESS   PATH                  MTU   SENT  RECEIVED  LAST SEEN  REFUSED  ANSWERS  RTT  LOSS OUT/IN  PASSES  TAKES
b     10.42.2.0/24, fd00:2::/64  10.0.0.2  kernel route, tunnel  1430  -     -         -          -        -        -    -            -       flannel: plain
c     10.42.3.0/24               10.0.0.3  kernel skipped        1430  -     -         -          -        -        -    -            -       flannel: plain

SUBNET        OF  WAY      BECAUSE
fd00:2::/64   b   tunnel   it is behind a router
10.42.3.0/24  c   skipped  its VNI is ?7
`
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}
