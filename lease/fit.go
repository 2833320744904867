package lease

import "net/netip"

// Unfit says why c would give a node others than s; "" if s fits. A family that c has off does
// not count.
func (c NetworkConfig) Unfit(s Subnets) string {
	for _, r := range c.ranges() {
		p := s.V4
		if r.network.Addr().Is6() {
			p = s.V6
		}
		if p == (netip.Prefix{}) {
			continue // a family that comes new takes nothing away
		}
		if why := r.unfit(p); why != "" {
			return why
		}
	}
	return ""
}
