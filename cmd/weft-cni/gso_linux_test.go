package main

import (
	"fmt"
	"net/netip"
	"testing"

	"weft/encap"
	"weft/routing"
	"weft/routing/underlay"
	"weft/tunnel"
)

// suitableGSO knows types of backends and paths by their names. Every type that the data plane carries has
// the limit of its format, on the paths that have superpackets; the format is the one whose overhead the
// type's MTU leaves room for.
func TestNamesAgree(t *testing.T) {
	const underlayMTU = 1500
	for _, name := range routing.BuiltIn().Names() {
		network, err := routing.Parse(fmt.Appendf(nil, `{"Network":"10.5.0.0/16","Backend":{"Type":%q}}`, name))
		if err != nil {
			t.Fatal(err)
		}
		if c := network.Facts().Carrier; c != routing.CarrierWeft && c != routing.CarrierEither {
			continue
		}
		mtu, err := network.MTU(underlay.Link{Name: "eth0", Index: 2, MTU: underlayMTU,
			Addr4: netip.MustParseAddr("192.0.2.1")})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, known := 0, false
		for _, f := range []encap.Format{encap.FormatIP, encap.FormatVXLAN, encap.FormatIPIP} {
			for _, six := range []bool{false, true} {
				if encap.InnerMTU(f, underlayMTU, six) == mtu {
					want, known = encap.GSOMaxSize(f, mtu), true
				}
			}
		}
		if name == "wireguard" { // its packets pass the library's TUN, which has a limit of its own
			if got := suitableGSO(backend{Type: name, Path: routing.PathUserspace}, mtu); got != 0 {
				t.Errorf("%s: %d, want 0", name, got)
			}
			continue
		}
		if !known {
			t.Fatalf("%s: no format leaves an MTU of %d", name, mtu)
		}
		for path, want := range map[tunnel.Path]int{tunnel.PathPortable: 0, tunnel.PathSocket: want,
			tunnel.PathRaw: want} {
			if got := suitableGSO(backend{Type: name, Path: path.String()}, mtu); got != want {
				t.Errorf("%s on path %v: %d, want %d", name, path, got, want)
			}
		}
	}
	if got := suitableGSO(backend{Type: "host-gw"}, underlayMTU); got != 0 {
		t.Errorf("a backend that the kernel carries: %d, want 0", got)
	}
}
