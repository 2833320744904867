package belief_test

import (
	"net/netip"
	"testing"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/leasetest"
)

func TestCheck(t *testing.T) {
	rules := belief.Rules{
		Config: leasetest.Config(t, `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`),
		Self: lease.Self{Node: "me", PublicIP: netip.MustParseAddr("192.0.2.1"),
			PublicIPv6: netip.MustParseAddr("2001:db8::1")},
		Own: leasetest.Subnets(t, "10.244.1.0/24,fd00:0:0:1::/64"),
		Underlay: []netip.Addr{
			netip.MustParseAddr("10.244.100.1"), netip.MustParseAddr("192.0.2.1"),
		},
		Store: []netip.Addr{netip.MustParseAddr("fd00:0:0:c8::1")},
	}
	tests := []struct {
		name, subnet, node, addr string
		want                     lease.RejectReason
	}{
		{"peer", "10.244.2.0/24", "a", "192.0.2.2", ""},
		{"flannel peer", "10.244.2.0/24,fd00:0:0:2::/64", "", "192.0.2.2,2001:db8::2", ""},
		{"only IPv6", "fd00:0:0:2::/64", "a", "2001:db8::2", ""},
		{"outside", "10.245.2.0/24", "a", "192.0.2.2", lease.RejectOutside},
		{"all of it", "10.0.0.0/8", "a", "192.0.2.2", lease.RejectOutside},
		{"v6 outside", "10.244.2.0/24,fd01::/64", "a", "192.0.2.2", lease.RejectOutside},
		{"longer", "10.244.2.0/25", "a", "192.0.2.2", lease.RejectLength},
		{"shorter", "10.244.2.0/23", "a", "192.0.2.2", lease.RejectLength},
		{"v6 length", "fd00:0:0:2::/65", "a", "2001:db8::2", lease.RejectLength},
		{"overlaps ours", "10.244.1.0/24", "a", "192.0.2.2", lease.RejectOverlapsOwn},
		{"overlaps ours in v6", "10.244.2.0/24,fd00:0:0:1::/64", "a", "192.0.2.2", lease.RejectOverlapsOwn},
		{"underlay", "10.244.100.0/24", "a", "192.0.2.2", lease.RejectCoversUnderlay},
		{"store", "10.244.2.0/24,fd00:0:0:c8::/64", "a", "192.0.2.2", lease.RejectCoversStore},
		{"our identity", "10.244.2.0/24", "me", "192.0.2.2", lease.RejectOurAddress},
		{"our address", "10.244.2.0/24", "a", "192.0.2.1", lease.RejectOurAddress},
		{"our address, no identity", "10.244.2.0/24", "", "192.0.2.1", lease.RejectOurAddress},
		{"loopback", "10.244.2.0/24", "a", "127.0.0.1", lease.RejectAddress},
		{"multicast", "10.244.2.0/24", "a", "ff02::1", lease.RejectAddress},
		{"broadcast", "10.244.2.0/24", "a", "255.255.255.255", lease.RejectAddress},
		{"inside its own subnet", "10.244.2.0/24", "a", "10.244.2.1", lease.RejectAddress},
		{"inside ours", "10.244.2.0/24", "a", "10.244.1.9", lease.RejectAddress},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := leasetest.Record(t, tt.subnet, tt.node, tt.addr, 1)
			peers, rejected := rules.Check([]*lease.Record{&r}, nil)
			switch {
			case tt.want == "" && len(peers) != 1:
				t.Errorf("rejected: %+v", rejected)
			case tt.want != "" && (len(rejected) != 1 || rejected[0].Reason != tt.want || rejected[0].Detail == ""):
				t.Errorf("peers %v, rejected %+v, want %s", peers, rejected, tt.want)
			}
		})
	}
	rules.Own = lease.Subnets{} // as when it has just given up its subnet
	own := leasetest.Record(t, "10.244.2.0/24", "me", "192.0.2.1", 1)
	if peers, rejected := rules.Check(leasetest.Pointers(own), nil); len(peers)+len(rejected) != 0 {
		t.Errorf("its own former record: peers %v, rejected %+v", peers, rejected)
	}
	copied := leasetest.Record(t, "10.244.2.0/24", "me", "192.0.2.2", 1)
	if _, rejected := rules.Check(leasetest.Pointers(copied), nil); len(rejected) != 1 {
		t.Errorf("a copy's record: rejected %+v", rejected)
	}
	noAddress := lease.Record{Subnets: leasetest.Subnets(t, "10.244.2.0/24")}
	if _, rejected := rules.Check(leasetest.Pointers(noAddress), nil); len(rejected) != 1 ||
		rejected[0].Reason != lease.RejectAddress {
		t.Errorf("without address: %+v", rejected)
	}
}

func TestCheckKeepsWhoWasThereFirst(t *testing.T) {
	rules := belief.Rules{Config: leasetest.Config(t,
		`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`), Self: lease.Self{Node: "me"}}
	first := leasetest.Record(t, "10.244.2.0/24,fd00:0:0:2::/64", "first", "192.0.2.2,2001:db8::2", 5)
	second := leasetest.Record(t, "10.244.2.0/24", "second", "192.0.2.3", 6) // sorts before first
	both := []lease.Record{second, first}
	peers, rejected := rules.Check(leasetest.Pointers(both...), []lease.Record{first})
	if len(peers) != 1 || peers[0].Node() != "first" || len(rejected) != 1 ||
		rejected[0].Reason != lease.RejectOverlapsPeer {
		t.Errorf("peers %v, rejected %+v", peers, rejected)
	}
	// One that covers a peer's address, and one whose address is in a peer's subnet.
	a := leasetest.Record(t, "10.244.4.0/24", "a", "10.244.9.9", 1)
	covers, inside := leasetest.Record(t, "10.244.9.0/24", "b", "192.0.2.9", 2),
		leasetest.Record(t, "10.244.10.0/24", "c", "10.244.4.4", 3)
	peers, rejected = rules.Check(leasetest.Pointers(inside, covers, a), []lease.Record{a})
	if len(peers) != 1 || peers[0].Node() != "a" || len(rejected) != 2 {
		t.Errorf("peers %v, rejected %+v", peers, rejected)
	}
}
