package routing

import (
	"fmt"

	"weft/lease"
)

// OverlayMTU is the largest inner packet, in bytes, that the backend of c would have over u, without
// making it. The error is why it would not start over u, or about c.
func OverlayMTU(c lease.NetworkConfig, u Underlay) (int, error) {
	var w interface{ mtu(link int) (int, error) }
	var err error
	switch c.BackendType {
	case typeUDP:
		o, err := ParseUDPConfig(c)
		if err != nil {
			return 0, err
		}
		return overlayMTU(u.MTU, o, u.outer6(), c.EnableIPv6)
	case typeVXLAN, typeAuto:
		var o VXLANOptions
		o, err = parseVXLAN(c)
		w = vxlan{o: o, enabled4: c.EnableIPv4, enabled6: c.EnableIPv6}
	case typeHostGW:
		var o plainOptions
		o, err = parseHostGW(c)
		w = hostGW{o}
	case typeAlloc:
		var o plainOptions
		o, err = parseAlloc(c)
		w = alloc{o}
	case typeExtension:
		var o ExtensionOptions
		o, err = parseExtension(c)
		w = extension{o: o}
	default:
		_, err = findKind(c.BackendType)
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	mtu, err := w.mtu(u.MTU)
	if err != nil {
		return mtu, fmt.Errorf("%s backend over %s: %w", c.BackendType, u.Link, err)
	}
	return mtu, nil
}

// Command is one of those that the network config names.
type Command struct{ Key, Command string }

// Commands lists what a backend of c would run, in the order in which it would; nil for a type that runs nothing.
func Commands(c lease.NetworkConfig) []Command {
	if c.BackendType != typeExtension {
		return nil
	}
	o, err := parseExtension(c)
	if err != nil {
		return nil
	}
	return []Command{
		{"PreStartupCommand", o.PreStartup}, {"PostStartupCommand", o.PostStartup}, {"SubnetAddCommand", o.SubnetAdd},
		{"SubnetRemoveCommand", o.SubnetRemove}, {"ShutdownCommand", o.Shutdown},
	}
}
