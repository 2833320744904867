package routing

import (
	"errors"

	"weft/lease"
	"weft/routing/hostrules"
)

// ParseConfig reads a whole network config, and says whether this build can serve
// it. The error joins one *lease.ConfigError for each fault, those of the backend's
// keys included; the result is then zero.
func ParseConfig(b []byte) (lease.NetworkConfig, error) {
	c, err := lease.ParseNetworkConfig(b)
	if c.BackendType != "" { // otherwise that fault is among the others
		k, bad := findKind(c.BackendType)
		if bad == nil {
			bad = k.check(c)
		}
		_, masquerade := hostrules.ParseNoMasquerade(c)
		err = errors.Join(err, bad, masquerade)
	}
	if err != nil {
		suggest(err)
		return lease.NetworkConfig{}, err
	}
	return c, nil
}
