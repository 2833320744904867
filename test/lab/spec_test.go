package lab

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSpecFaultsComeTogether(t *testing.T) {
	_, err := Spec{Nodes: 999, PodsPerNode: -1, MTU: 10, NetworkConfig: []byte("{"), Direct: true,
		Endpoints: []string{"x"}, WeftdPath: "/x", Wire: "rope"}.withDefaults()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"nodes: 999", "-1", "mtu: 10", "not JSON", "exactly", "endpoints",
		`wire "rope"`, "plain"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestKernelAttachesNoPodDirectly(t *testing.T) {
	_, err := Spec{Driver: KernelVXLAN, Attach: DirectAttach}.withDefaults()
	if err == nil || !strings.Contains(err.Error(), "need weftd") {
		t.Errorf("attached to the kernel: %v", err)
	}
}

func TestNthSubnet(t *testing.T) {
	for _, c := range []struct {
		network string
		bits, n int
		want    string // "": an error
	}{
		{"10.42.0.0/16", 24, 1, "10.42.1.1/24"},
		{"10.42.0.0/16", 24, 250, "10.42.250.1/24"},
		{"10.0.0.0/8", 24, 250, "10.0.250.1/24"},
		{"10.42.254.0/23", 24, 1, "10.42.255.1/24"},
		{"10.42.254.0/23", 24, 2, ""},
		{"255.255.255.0/24", 24, 1, ""},
		{"10.42.0.0/28", 24, 1, ""},
		{"fd42::/48", 64, 3, "fd42:0:0:3::1/64"},
		{"fd42::/64", 64, 1, ""},
	} {
		got, err := nthSubnet(netip.MustParsePrefix(c.network), c.bits, c.n)
		if c.want == "" {
			if err == nil {
				t.Errorf("subnet %d of %s: %s, want an error", c.n, c.network, got)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("subnet %d of %s: %s, %v, want %s", c.n, c.network, got, err, c.want)
		}
	}
}
