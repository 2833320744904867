package routing

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
)

// mtus are the largest datagram with its IP header, and the largest inner packet, in bytes.
type mtus struct{ outer, inner int }

// situation is what a type decides on.
type situation struct {
	set   lease.Set
	under underlay.Link
	mtu   int // the largest inner packet, in bytes
	outer int // the largest datagram, in bytes
	// hops are how the kernel would send to the peers' addresses, for a type that asks for them.
	hops map[netip.Addr]kernel.Hop
	// joiner is what has a device join no more what must not be joined, for a type that says so; "" if none
	// does.
	joiner string
	// displaced are the peers' addresses that the overlay cuts off; nil for a type without a tunnel of ours.
	displaced []underlay.Displaced
	// claims say who has had which address, MAC or key so far.
	claims claims
}

// equal reports whether two situations are the same but for the set and what an earlier decision made of it.
func (s situation) equal(t situation) bool {
	return s.under == t.under && s.mtu == t.mtu && s.outer == t.outer && s.joiner == t.joiner &&
		slices.Equal(s.displaced, t.displaced) && maps.Equal(s.hops, t.hops)
}

// desired is what a type wants: of the kernel, State, of the data plane, spec.
type desired struct {
	kernel.State
	// ways are all subnets of all peers.
	ways []way
	// spec is nil for a type whose packets the kernel moves.
	spec *tunnel.Spec
	// notes are about records that are used, but not wholly.
	notes  []Skipped
	claims claims // for the next time; nil for a type that gives nothing to one peer alone
	// driven is for the type's own driver alone, which knows what it is.
	driven any
	// device is Status.Devices for a backend without devices of its own.
	device string
}

// used are the ways that are not skipped.
func (d *desired) used() iter.Seq[*way] {
	return func(yield func(*way) bool) {
		for i := range d.ways {
			if w := &d.ways[i]; w.How != HowSkipped && !yield(w) {
				return
			}
		}
	}
}

// reached reports about all ways, or about those that are skipped: of thousands hardly one.
func (d *desired) reached(all bool) (out []Reached) {
	if all {
		out = make([]Reached, 0, len(d.ways))
	}
	for i := range d.ways {
		if w := &d.ways[i]; all || w.How == HowSkipped {
			out = append(out, w.Reached)
		}
	}
	return out
}

// skipped lists what is not used, or not wholly, in the form of Status.Skipped.
func (d *desired) skipped() []Skipped { return slices.Concat(skippedOf(d.reached(false)), d.notes) }

// peers counts the records with at least one way that is used. Those of one record stand side by side.
func (d *desired) peers() (n int) {
	var last *lease.Record
	for w := range d.used() {
		if w.r != last {
			n, last = n+1, w.r
		}
	}
	return n
}

// decision is what is wanted at present, and what it was made from.
type decision struct {
	desired           // without ways and spec: the data plane has the table
	from    situation // without the set
	reached []Reached
	peers   int // that are used
	skips   []Skipped
	stale   bool // it has to be made anew
}

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

// usedPeers counts the peers with at least one subnet that is not skipped. Those of one record stand side by
// side.
func usedPeers(rs []Reached) (n int) {
	var last lease.Subnets
	for _, r := range rs {
		if r.How != HowSkipped && r.Subnets != last {
			n, last = n+1, r.Subnets
		}
	}
	return n
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
