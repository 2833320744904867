package netconf

import (
	"net/netip"
	"slices"

	"weft/lease/subnetenv"
)

// Env is what the plugin needs of a subnet.env.
type Env struct {
	// Networks are the overlay's, IPv4 before IPv6, masked and each once.
	Networks []netip.Prefix
	// Subnets are the node's: one of each family that is on, IPv4 first, masked.
	Subnets []netip.Prefix
	// MTU is the pods', in bytes.
	MTU int
	// IPMasq says that the node masquerades, so that the delegate need not.
	IPMasq bool
}

// EnvOf returns the Env of a subnet.env.
func EnvOf(f subnetenv.File) Env {
	e := Env{MTU: f.MTU, IPMasq: f.IPMasq}
	for _, n := range slices.Concat(f.Networks, f.IPv6Networks) {
		if n = n.Masked(); !slices.Contains(e.Networks, n) {
			e.Networks = append(e.Networks, n)
		}
	}
	for _, s := range []netip.Prefix{f.Subnet, f.IPv6Subnet} {
		if s.IsValid() {
			e.Subnets = append(e.Subnets, s.Masked())
		}
	}
	return e
}
