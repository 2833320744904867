package routing

import (
	"slices"

	"weft/routing/internal/kernel"
)

// DeviceTraffic is what the kernel counted on one device that packets pass between this node and its peers.
type DeviceTraffic struct {
	Name string `json:"name"`
	// Overlay devices are the overlay's own: all that passes them is between this node and its peers. Another is
	// the underlay's link, on which the host's other packets are counted too.
	Overlay bool `json:"overlay"`
	DeviceCounters
}

// DeviceCounters are the kernel's, since the device was made.
type DeviceCounters = kernel.Counters

// Traffic reads the counters of the devices of a backend whose packets the kernel moves. The kernel counts
// for devices, and for no peer. A device that is gone just now is left out.
func (s Status) Traffic() []DeviceTraffic {
	if s.Path != PathKernel && s.Path != PathUserspace {
		return nil
	}
	var out []DeviceTraffic
	names := slices.Clone(s.Devices)
	if u := s.Underlay.Name; u != "" && !slices.Contains(names, u) && s.direct() {
		names = append(names, u)
	}
	for _, name := range names {
		if c, err := kernel.ReadCounters(name); err == nil {
			out = append(out, DeviceTraffic{name, name != s.Underlay.Name, c})
		}
	}
	return out
}

// direct reports whether packets for some peer leave by the underlay's link as they are.
func (s Status) direct() bool {
	return slices.ContainsFunc(s.Reached, func(r Reached) bool { return r.How == HowRoute })
}
