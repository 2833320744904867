package port

import (
	"fmt"
	"net/netip"
)

// Outlet is the way in which superpackets leave a port of path raw.
type Outlet uint8

// The outlets.
const (
	_           Outlet = iota
	OutletWhole        // whole, by the TAP: the device or the kernel segments them
	OutletRuns         // as a run of datagrams with our headers: the device or the kernel segments the run
	// OutletCut is only used in OutletStats: as single datagrams, because the port cannot send runs.
	OutletCut
)

// String returns the outlet's name in status.
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

// OutletChoice is the outlet that a port must use, and the reason. It is comparable.
type OutletChoice struct {
	Outlet Outlet
	// Why is the reason, for people.
	Why string
}

// OutletStats is a snapshot of the outlet of one port.
type OutletStats struct {
	// Chosen is the last choice.
	Chosen OutletChoice
	// Local is the port's outer address.
	Local netip.AddrPort
	// Now is the outlet in use.
	Now Outlet
}
