package encap

import (
	"net/netip"
	"testing"
)

func TestMartians(t *testing.T) {
	for _, c := range []struct {
		addr string
		want bool
	}{
		{"0.0.0.0", true}, {"0.255.255.255", true}, {"1.0.0.0", false},
		{"126.255.255.255", false}, {"127.0.0.1", true}, {"127.255.255.255", true}, {"128.0.0.0", false},
		{"169.253.255.255", false}, {"169.254.0.0", true}, {"169.254.255.255", true}, {"169.255.0.0", false},
		{"223.255.255.255", false}, {"224.0.0.0", true}, {"239.255.255.255", true}, {"240.0.0.0", false},
		{"255.255.255.254", false}, {"255.255.255.255", true},
		{"10.1.1.0", false}, {"10.1.1.255", false}, {"192.168.0.1", false},
		{"::", true}, {"::1", true}, {"::2", false}, {"::ffff:10.1.1.1", true}, {"64:ff9b::1", false},
		{"fe7f::1", false}, {"fe80::1", true}, {"febf::1", true}, {"fec0::1", false},
		{"feff::1", false}, {"ff00::", true}, {"ff02::1", true}, {"ff0e::1", true},
		{"fd00::1", false}, {"2001:db8::1", false},
	} {
		a := ip(c.addr)
		if MartianSource(a) != c.want || MartianDestination(a) != c.want {
			t.Errorf("%v: source %t, destination %t, want %t", a, MartianSource(a), MartianDestination(a), c.want)
		}
	}
	if !MartianSource(netip.Addr{}) || !MartianDestination(netip.Addr{}) {
		t.Error("no address is not a martian")
	}
}
