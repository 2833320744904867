package tunnel

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

// Outlets chooses the way by which superpackets leave a port, with the reason. It is comparable.
type Outlets struct {
	// First is the outlet in use until a trial finds the other one cheaper.
	First Outlet
	// Try makes the port compare the cost of its own sends by either outlet. If false, the port uses First
	// and measures nothing.
	Try bool
	// Trust means that First has advantages which the cost of a send does not show. The other outlet then
	// replaces it only if it costs less than half.
	Trust bool
	// Why is the reason, for people.
	Why string
}

// OutletStats is the state of one port's outlets.
type OutletStats struct {
	Outlets
	// Local is the port's outer address.
	Local netip.AddrPort
	// Now is the outlet in use.
	Now Outlet
	// Trials counts the comparisons since Outlets were set, and Changes those that led to another outlet.
	Trials, Changes uint64
	// Whole and Runs are the costs that the last trial measured, in picoseconds per byte of inner packet; 0
	// before the first.
	Whole, Runs uint64
}
