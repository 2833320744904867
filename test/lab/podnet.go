package lab

import (
	"net/netip"
	"strings"

	"weft/lease/subnetenv"
)

// PodNet says what a node's pods are given. V4 and V6 are the bridge's address with the subnet's
// length, or the zero Prefix if there is no such family. MTU is in bytes.
type PodNet struct {
	V4, V6 netip.Prefix
	MTU    int
}

// readPodNet reads what weftd wrote for the CNI plugin.
func readPodNet(path string) (PodNet, error) {
	f, err := subnetenv.Read(path)
	return PodNet{V4: f.Subnet, V6: f.IPv6Subnet, MTU: f.MTU}, err
}

// gateways returns the bridge's addresses.
func (p PodNet) gateways() []netip.Prefix {
	var all []netip.Prefix
	for _, g := range []netip.Prefix{p.V4, p.V6} {
		if g.IsValid() {
			all = append(all, g)
		}
	}
	return all
}

func (p PodNet) subnets() string {
	var all []string
	for _, g := range p.gateways() {
		all = append(all, g.Masked().String())
	}
	return strings.Join(all, " ")
}
