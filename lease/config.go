package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// NetworkConfig is the network that all nodes share: flannel's JSON, checked and
// with every default filled in. The fields of a family that is off are zero.
// It is a value; Backend is shared between copies and never changed.
type NetworkConfig struct {
	// EnableIPv4 and EnableIPv6 say which families the overlay carries; at least one.
	EnableIPv4, EnableIPv6 bool
	// EnableNFTables asks for nftables instead of iptables.
	EnableNFTables bool
	// Network and IPv6Network are the overlay's address space, masked.
	Network, IPv6Network netip.Prefix
	// SubnetLen and IPv6SubnetLen are the prefix length, in bits, of every lease.
	SubnetLen, IPv6SubnetLen int
	// SubnetMin and SubnetMax are the base addresses of the first and the last subnet
	// that is given out.
	SubnetMin, SubnetMax         netip.Addr
	IPv6SubnetMin, IPv6SubnetMax netip.Addr
	// BackendType is Backend's Type in lower case, DefaultBackend if Backend is absent.
	BackendType string
	// Backend is the object as it was written, nil if absent.
	Backend json.RawMessage
}

// ConfigError is one fault in the network configuration.
type ConfigError struct {
	// Key is the JSON key at fault, "" if the text as a whole is.
	Key string
	// Got is what was found there.
	Got string
	// Want is what would be right.
	Want string
	// Meant is the value that was probably meant; "" if there is no guess.
	Meant string
}

func (e *ConfigError) Error() string {
	subject, hint := e.Got, ""
	if e.Key != "" {
		subject = e.Key + " is " + e.Got
	}
	if e.Meant != "" {
		hint = fmt.Sprintf("; did you mean %q?", e.Meant)
	}
	return fmt.Sprintf("network config: %s: want %s%s", subject, e.Want, hint)
}

// ParseNetworkConfig reads flannel's network configuration. As with flannel, keys match in any case, and
// unknown keys have no effect. The error joins one *ConfigError for each fault; errors.As finds the first.
// With an error, only BackendType, Backend and the families that are on are valid, and only if BackendType is
// not empty: a backend can then add the faults that it finds.
func ParseNetworkConfig(b []byte) (NetworkConfig, error) {
	var p configParser
	p.parse(b)
	if len(p.faults) > 0 {
		return NetworkConfig{
			EnableIPv4: p.cfg.EnableIPv4, EnableIPv6: p.cfg.EnableIPv6,
			BackendType: p.cfg.BackendType, Backend: p.cfg.Backend,
		}, errors.Join(p.faults...)
	}
	return p.cfg, nil
}

// Equal reports whether both configurations mean the same; white space inside
// Backend does not count.
func (c NetworkConfig) Equal(d NetworkConfig) bool {
	sameBackend := func() bool {
		if bytes.Equal(c.Backend, d.Backend) {
			return true
		}
		a, errA := json.Marshal(c.Backend)
		b, errB := json.Marshal(d.Backend)
		return len(c.Backend) > 0 && len(d.Backend) > 0 && errA == nil && errB == nil && bytes.Equal(a, b)
	}
	return c.EnableIPv4 == d.EnableIPv4 && c.EnableIPv6 == d.EnableIPv6 &&
		c.EnableNFTables == d.EnableNFTables &&
		c.Network == d.Network && c.SubnetLen == d.SubnetLen && c.SubnetMin == d.SubnetMin &&
		c.SubnetMax == d.SubnetMax &&
		c.IPv6Network == d.IPv6Network && c.IPv6SubnetLen == d.IPv6SubnetLen &&
		c.IPv6SubnetMin == d.IPv6SubnetMin && c.IPv6SubnetMax == d.IPv6SubnetMax &&
		sameBackend()
}

// Networks returns the overlay's networks, IPv4 first, without host bits.
func (c NetworkConfig) Networks() []netip.Prefix {
	return slices.DeleteFunc([]netip.Prefix{c.Network.Masked(), c.IPv6Network.Masked()},
		func(p netip.Prefix) bool { return !p.IsValid() })
}

// configJSON is the order in which a configuration is written.
type configJSON struct {
	EnableIPv4     bool
	EnableIPv6     bool            `json:",omitempty"`
	EnableNFTables bool            `json:",omitempty"`
	Network        *netip.Prefix   `json:",omitempty"`
	SubnetLen      int             `json:",omitempty"`
	SubnetMin      *netip.Addr     `json:",omitempty"`
	SubnetMax      *netip.Addr     `json:",omitempty"`
	IPv6Network    *netip.Prefix   `json:",omitempty"`
	IPv6SubnetLen  int             `json:",omitempty"`
	IPv6SubnetMin  *netip.Addr     `json:",omitempty"`
	IPv6SubnetMax  *netip.Addr     `json:",omitempty"`
	Backend        json.RawMessage `json:",omitempty"`
}

// MarshalJSON writes every value in effect, in a form that ParseNetworkConfig and
// flannel read back to the same configuration.
func (c NetworkConfig) MarshalJSON() ([]byte, error) {
	out := configJSON{
		EnableIPv4: c.EnableIPv4, EnableIPv6: c.EnableIPv6, EnableNFTables: c.EnableNFTables,
		SubnetLen: c.SubnetLen, IPv6SubnetLen: c.IPv6SubnetLen, Backend: c.Backend,
	}
	if c.EnableIPv4 {
		out.Network, out.SubnetMin, out.SubnetMax = &c.Network, &c.SubnetMin, &c.SubnetMax
	}
	if c.EnableIPv6 {
		out.IPv6Network, out.IPv6SubnetMin, out.IPv6SubnetMax = &c.IPv6Network, &c.IPv6SubnetMin, &c.IPv6SubnetMax
	}
	return json.Marshal(out)
}

// InUse returns s without a family that the network has off.
func (c NetworkConfig) InUse(s Subnets) Subnets {
	if !c.EnableIPv4 {
		s.V4 = netip.Prefix{}
	}
	if !c.EnableIPv6 {
		s.V6 = netip.Prefix{}
	}
	return s
}
