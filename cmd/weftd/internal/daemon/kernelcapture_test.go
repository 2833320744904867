package daemon

import (
	"net/netip"
	"testing"

	"weft/cmd/internal/pcapfilter"
)

// What a capture of one peer sees is settled before a packet is read.
func TestAPeersFilter(t *testing.T) {
	peer := &captured{
		name: "b", addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")},
		inner: []netip.Prefix{netip.MustParsePrefix("10.42.7.0/24"), netip.MustParsePrefix("fd42:0:0:7::/64")},
	}
	f, err := pcapfilter.Compile(allOf("udp", peer.filter(), ""))
	if err != nil {
		t.Fatal(err)
	}
	udp4 := func(from, to string) []byte {
		b := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}
		b = append(append(b, netip.MustParseAddr(from).AsSlice()...), netip.MustParseAddr(to).AsSlice()...)
		return append(b, 0, 53, 0, 53, 0, 8, 0, 0)
	}
	udp6 := func(from, to string) []byte {
		b := []byte{0x60, 0, 0, 0, 0, 8, 17, 64}
		b = append(append(b, netip.MustParseAddr(from).AsSlice()...), netip.MustParseAddr(to).AsSlice()...)
		return append(b, 0, 53, 0, 53, 0, 8, 0, 0)
	}
	tcp := udp4("10.42.7.9", "10.42.1.9")
	tcp[9] = 6
	for name, c := range map[string]struct {
		packet []byte
		want   bool
	}{
		"from its pod":        {udp4("10.42.7.9", "10.42.1.9"), true},
		"to its pod":          {udp6("fd42:0:0:1::9", "fd42:0:0:7::9"), true},
		"from its host":       {udp4("192.0.2.2", "192.0.2.1"), true},
		"to its host":         {udp6("2001:db8::1", "2001:db8::2"), true},
		"of another peer":     {udp4("10.42.8.9", "10.42.1.9"), false},
		"of another, IPv6":    {udp6("fd42:0:0:8::9", "fd42:0:0:1::9"), false},
		"what is not asked":   {tcp, false},
		"too short for a way": {[]byte{0x45}, false},
	} {
		if got := f.Match(c.packet); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if all := (*captured)(nil).filter(); all != "" {
		t.Errorf("every peer: %q", all)
	}
}
