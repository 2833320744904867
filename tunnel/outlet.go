package tunnel

import (
	"fmt"
	"net/netip"
)

// Outlet is how a superpacket leaves a port of path raw.
type Outlet uint8

// The outlets.
const (
	_           Outlet = iota
	OutletWhole        // whole, by the TAP: the device cuts it, or the kernel in front of it
	OutletRuns         // as a run of datagrams, whose headers we write: the device cuts the run, or the kernel
	// OutletCut is that of OutletStats alone: as datagrams, each with a send of its own, since the port sends no runs.
	OutletCut

	firstOutlet = OutletWhole
	numOutlets  = 2
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

func (o Outlet) other() Outlet { return OutletWhole + OutletRuns - o }

// Outlets says how superpackets may leave a port, and why. It is comparable.
type Outlets struct {
	// First is how they leave until a trial finds the other cheaper.
	First Outlet
	// Try has the port compare what its own sends cost by either outlet. Without it, First is used and nothing is measured.
	Try bool
	// Trust says that there are reasons for First which the price of a send does not show: the other has to cost less than half
	// to take its place.
	Trust bool
	// Why is for people.
	Why string
}

// OutletStats is how superpackets leave one port.
type OutletStats struct {
	Outlets
	// Local is the port's outer address.
	Local netip.AddrPort
	// Now is the outlet in use.
	Now Outlet
	// Trials is how many comparisons there were since Outlets were set, and Changes how many of them led to another outlet.
	Trials, Changes uint64
	// Whole and Runs are the prices that the last trial found, in picoseconds a byte of inner packet; 0 before the first.
	Whole, Runs uint64
}
