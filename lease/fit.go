package lease

import (
	"errors"
	"fmt"
	"net/netip"
)

// Unfit returns the reason for which c would give a node other subnets than s; "" if s fits. A family that c
// has off does not count.
func (c NetworkConfig) Unfit(s Subnets) string {
	for _, r := range c.Ranges() {
		p := r.Of(s)
		if p == (netip.Prefix{}) {
			continue // a family that comes new takes nothing away
		}
		if why := r.Unfit(p); why != "" {
			return why
		}
	}
	return ""
}

// Contains returns nil if the networks of c have s in them, whatever the lengths are, and else a
// *ConfigError for each family that has not: pods of such a node would be cut off. A family that c has off
// does not count.
func (c NetworkConfig) Contains(s Subnets) error {
	var faults []error
	for _, f := range []struct {
		key          string
		on           bool
		network, own netip.Prefix
	}{{"Network", c.EnableIPv4, c.Network, s.V4}, {"IPv6Network", c.EnableIPv6, c.IPv6Network, s.V6}} {
		if f.on && f.own.IsValid() && (!f.network.Contains(f.own.Addr()) || f.network.Bits() > f.own.Bits()) {
			faults = append(faults, &ConfigError{Key: f.key, Got: f.network.String(),
				Want: fmt.Sprintf("one that contains this node's subnet %s, or its pods are cut off", f.own)})
		}
	}
	return errors.Join(faults...)
}
