// Package event has what lines of the log tell of routes, rules, devices and paths: a package of its own,
// since packages below routing say so too.
package event

import (
	"weft/tunnel/port"
)

// The kinds. The comments become docs/reference/events.md.
const (
	// a peer's record cannot be used, for the `reason`
	PeerUnused port.EventKind = "peer_unused"
	// packets to or from peers are lost, a part of all or the large ones, with the `likely` cause; or no
	// longer
	PeerLossy port.EventKind = "peer_lossy"
	// the interface that carries the overlay, when it was chosen and when it changed
	UnderlayChosen port.EventKind = "underlay_chosen"
	// the interface that carries the overlay, or its address, is gone
	UnderlayLost port.EventKind = "underlay_lost"
	// devices, addresses, routes or neighbours were put back after somebody changed them
	RoutesRepaired port.EventKind = "routes_repaired"
	// firewall rules were put back after somebody changed them
	RulesRepaired port.EventKind = "rules_repaired"
	// firewall rules are as wanted
	RulesInPlace port.EventKind = "rules_in_place"
	// a device or port was made anew
	DeviceRepaired port.EventKind = "device_repaired"
	// what flannel or another backend left was adopted or removed
	TakenOver port.EventKind = "taken_over"
	// a better path was not possible, and why
	PathChosen port.EventKind = "path_chosen"
	// what weft did with rx-udp-gro-forwarding
	ReceiveJoining port.EventKind = "receive_joining"
)
