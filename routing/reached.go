package routing

import (
	"net/netip"

	"weft/lease"
)

// How says by what a peer's subnet is reached.
type How uint8

const (
	_ How = iota
	// HowRoute is a plain route by the peer's own address.
	HowRoute
	// HowTunnel is encapsulation.
	HowTunnel
	// HowCommand is whatever the operator's command made.
	HowCommand
	// HowController is a route that the operator's controller made.
	HowController
	// HowSkipped is none: Reason says why.
	HowSkipped
)

// String is the word for weft peers.
func (h How) String() string {
	words := [...]string{HowRoute: "route", HowTunnel: "tunnel", HowCommand: "command",
		HowController: "controller", HowSkipped: "skipped"}
	if h == 0 || int(h) >= len(words) {
		return "unknown"
	}
	return words[h]
}

// Reached says how packets for one subnet of a peer get there. It is comparable.
type Reached struct {
	// Peer, Node and Address are as in Skipped, Subnets is the record it is about.
	Peer, Node string
	Address    netip.Addr
	Subnets    lease.Subnets
	// Subnet is the one of the two that this is about.
	Subnet netip.Prefix
	How    How
	// Via is the peer's address on the underlay; the zero Addr if there is none.
	Via netip.Addr
	// Reason says why the subnet is not reached, or not as it could best be; "" if it is.
	Reason string
}

// skippedOf lists what is skipped in the form of Status.Skipped.
func skippedOf(rs []Reached) []Skipped {
	var out []Skipped
	for _, r := range rs {
		s := Skipped{Peer: r.Peer, Node: r.Node, Address: r.Address, Reason: r.Reason, Subnets: r.Subnets}
		if r.How == HowSkipped && (len(out) == 0 || out[len(out)-1] != s) { // one reason for both families
			out = append(out, s)
		}
	}
	return out
}

// onlySkipped leaves out what is reached.
func onlySkipped(rs []Reached) []Reached {
	var out []Reached // of thousands hardly one
	for _, r := range rs {
		if r.How == HowSkipped {
			out = append(out, r)
		}
	}
	return out
}

// usedPeers counts the peers with at least one subnet that is not skipped.
func usedPeers(rs []Reached) int {
	used := map[lease.Subnets]bool{}
	for _, r := range rs {
		if r.How != HowSkipped {
			used[r.Subnets] = true
		}
	}
	return len(used)
}

// tunnelled names the first peer with an IPv4 subnet that is reached by the tunnel although a plain route
// was looked for; "" if there is none.
func tunnelled(reached []Reached) string {
	for _, r := range reached {
		if r.How == HowTunnel && r.Reason != "" && r.Subnet.Addr().Is4() {
			return r.Peer
		}
	}
	return ""
}
