package routing

import (
	"errors"
	"fmt"

	"weft/lease"
)

// ParseConfig reads a whole network config, and says whether this build can serve
// it. The error joins one *lease.ConfigError for each fault, those of the backend's
// keys included; the result is then zero.
func ParseConfig(b []byte) (lease.NetworkConfig, error) {
	c, err := lease.ParseNetworkConfig(b)
	switch c.BackendType {
	case "": // that fault is among the others
	case typeUDP:
		_, bad := ParseUDPConfig(c)
		err = errors.Join(err, bad)
	default:
		err = errors.Join(err, &lease.ConfigError{
			Key: "Backend.Type", Got: fmt.Sprintf("%q", c.BackendType), Want: `"udp": the other backends are not in this build`})
	}
	if err != nil {
		return lease.NetworkConfig{}, err
	}
	return c, nil
}
