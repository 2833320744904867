// Package probe sends packets between hosts of a lab and counts what arrives: echo
// requests between all of them, a paced UDP stream whose every packet has a number, and
// a TCP stream whose bytes are compared.
//
// Sockets are made on the namespace's thread and used from ordinary goroutines. All times
// are read from one clock, this machine's CLOCK_MONOTONIC, so a delay in one direction can be measured.
package probe

import (
	"net/netip"

	"weft/test/lab/netns"
)

// Endpoint is one address of one host.
type Endpoint struct {
	// Name is what results call it.
	Name string
	NS   *netns.Namespace
	Addr netip.Addr
}
