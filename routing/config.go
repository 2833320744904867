package routing

import (
	"errors"

	"weft/lease"
	"weft/routing/hostrules"
)

// ParseConfig calls ParseConfig of BuiltIn().
func ParseConfig(b []byte) (lease.NetworkConfig, error) { return BuiltIn().ParseConfig(b) }

// ParseConfig reads a whole network config, and says whether a program with these types can serve
// it. The error joins one *lease.ConfigError for each fault, those of the backend's
// keys included; the result is then zero.
func (ts Types) ParseConfig(b []byte) (lease.NetworkConfig, error) {
	c, err := lease.ParseNetworkConfig(b)
	if c.BackendType != "" { // otherwise that fault is among the others
		_, bad := ts.Settings(c)
		_, masquerade := hostrules.ParseNoMasquerade(c)
		err = errors.Join(err, bad, masquerade)
	}
	if err != nil {
		ts.suggest(err)
		return lease.NetworkConfig{}, err
	}
	return c, nil
}
