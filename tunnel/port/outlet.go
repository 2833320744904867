package port

import (
	"fmt"
	"net/netip"
)

// Outlet is the way by which a superpacket leaves a port of path raw.
type Outlet uint8

// The outlets.
const (
	_           Outlet = iota
	OutletWhole        // whole, by the TAP: the device cuts it, or the kernel in front of it
	OutletRuns         // as a run of datagrams, whose headers we write: the device cuts the run, or the kernel
	// OutletCut is that of OutletStats alone: as datagrams, each with a send of its own, since the port sends no
	// runs.
	OutletCut
)

// String is the outlet's name in status.
func (o Outlet) String() string {
	switch o {
	case OutletWhole:
		return "whole"
	case OutletRuns:
		return "runs"
	case OutletCut:
		return "cut"
	}
	return fmt.Sprintf("outlet(%d)", uint8(o))
}

// OutletChoice is the outlet that a port is to use, with the reason. It is comparable.
type OutletChoice struct {
	Outlet Outlet
	// Why is the reason, for people.
	Why string
}

// OutletStats is the outlet of one port.
type OutletStats struct {
	// Chosen was set last.
	Chosen OutletChoice
	// Local is the port's outer address.
	Local netip.AddrPort
	// Now is the outlet in use.
	Now Outlet
}
