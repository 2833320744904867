package show

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/test/golden"
)

func TestMain(m *testing.M) {
	golden.Flag()
	os.Exit(m.Run())
}

func TestUnreachablePeersAreListed(t *testing.T) {
	now := time.Now()
	said := func(name, by, says string, ago time.Duration) control.Peer {
		return control.Peer{Name: name, Address: addr("192.0.2.2"),
			Unreachable: &control.Unreachable{Says: says, By: addr(by), Count: 12, Last: now.Add(-ago)}}
	}
	var out bytes.Buffer
	_ = printFindings(&out, control.Status{Backend: control.Backend{Type: "udp", Port: 8285}},
		control.Peers{Peers: []control.Peer{
			said("db2", "192.0.2.2", "port unreachable", 3*time.Second),
			said("db3", "192.0.2.254", "administratively prohibited", time.Minute),
			said("db4", "192.0.2.254", "host unreachable", 4*time.Minute),
			said("db5", "192.0.2.2", "protocol unreachable", 2*time.Second),
			said("long ago", "192.0.2.2", "port unreachable", time.Hour), {Name: "well"},
		}}, now)
	golden.Check(t, "peers-unreachable", out.Bytes())
}

// TestEncryption prints what WireGuard knows of peers, and names the fault of one that is not heard.
func TestEncryption(t *testing.T) {
	now := time.Now()
	p := control.Peers{Peers: []control.Peer{
		{Name: "a", Encryption: []control.Encryption{{Device: "flannel-wg", PublicKey: "QQ==",
			Endpoint: netip.MustParseAddrPort("192.0.2.1:51820"), Handshake: now.Add(-time.Minute), TxBytes: 2048,
			RxBytes: 10}}},
		{Name: "b\x1b[2J", Encryption: []control.Encryption{{Device: "flannel-wg", PublicKey: "Qg==",
			Endpoint: netip.MustParseAddrPort("[2001:db8::1]:7"), TxBytes: 148, Likely: "no handshake",
			Look: "a firewall?"}}},
		{Name: "c"},
	}}
	var b strings.Builder
	if err := printEncryption(&b, p, now); err != nil {
		t.Fatal(err)
	}
	want := `
ENCRYPTED TO  DEVICE      ENDPOINT         LATEST HANDSHAKE  SENT    RECEIVED  PUBLIC KEY
a             flannel-wg  192.0.2.1:51820  1m00s ago         2.0KiB  10B       QQ==
b?[2J         flannel-wg  [2001:db8::1]:7  never             148B    0B        Qg==

b?[2J: no handshake: a firewall?
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

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
