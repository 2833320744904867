package tunnel

import (
	"net/netip"
	"testing"

	"weft/encap"
)

// TestForgedOfLeftOut wants a source refused that is of a peer to whom there is no way: one that the table
// refuses, and one that it was told of.
func TestForgedOfLeftOut(t *testing.T) {
	self, local := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("10.244.1.0/24")
	s := Spec{
		Check: CheckStrict, Local: []netip.Prefix{local}, Self: []netip.Addr{self}, UnderlayMTU: 1500,
		Peers: []PeerSpec{
			{Name: "b", Addr: netip.MustParseAddr("192.0.2.2"),
				Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}},
			{Name: "c", Addr: self, Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}},
		},
		LeftOut: []PeerSpec{{Name: "d", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.4.0/24"),
			local, {}}}},
	}
	table, err := NewTable(encap.FormatIP, s)
	if err == nil {
		t.Error("a peer at our own address is no fault")
	}
	for src, of := range map[string]string{"10.244.1.5": "", "10.244.2.5": "b", "10.244.3.5": "c",
		"10.244.4.5": "d", "10.244.5.5": ""} {
		name := ""
		if p := table.forged(netip.MustParseAddr(src)); p != nil {
			name = p.spec.Name
		}
		if name != of {
			t.Errorf("a source of %s is %q's, want %q", src, name, of)
		}
	}
	next, _ := table.Next(Spec{Check: CheckStrict, Local: s.Local})
	if next.forged(netip.MustParseAddr("10.244.4.5")) != nil {
		t.Error("the next table still knows who was left out")
	}
}
