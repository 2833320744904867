package routing

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/routing/underlay"
	"weft/tunnel"
	"weft/tunnel/port"
)

// backendType is a type of backend but for the labour of keeping the kernel and the data plane so. It is
// pure.
type backendType interface {
	trait() trait
	// publish is Node.Publish.
	publish() (data, v6data json.RawMessage)
	// sizes are those of packets over the underlay as it is. Beside an error, which says why the backend
	// would not start there, they are what is possible, for the families that it suffices for.
	sizes(u underlay.Link) (mtus, error)
	// want says what becomes of the set.
	want(s situation) desired
}

// planeTrait is what distinguishes types whose packets weft's own data plane moves. Their want has a spec.
type planeTrait struct {
	// options are what the data plane is made with; Workers, Logger and Nudge are the node's to say.
	options plane.Options
	// recv is what the lease record names of what this node parses beyond one complete packet a datagram.
	recv port.Recv
	// note is what works less well than it could; "" if nothing does.
	note string
}

// trait is what distinguishes one type from another.
type trait struct {
	// record is Node.RecordType; path is Status.Path of a type without a data plane.
	record, path string
	// asksHops says that it matters how the kernel would send to each peer: situation.hops is filled in.
	asksHops bool
	// tunnels says that datagrams to the peers' addresses carry the overlay: situation.displaced is filled in,
	// as for a data plane.
	tunnels bool
	// joinsHurt says that the data plane cannot take apart datagrams of UDP which the underlay's device has
	// joined: situation.joiner is filled in.
	joinsHurt bool
	// viaPublic says that flannel's routes by the type's device have the peer's address as their gateway, and
	// not its subnet's.
	viaPublic bool
	// uniform says that all peers are reached alike, so that only those that are not are worth a report.
	uniform bool
	// last says that the driver acts once the kernel is as wanted: the first time, that takes away what flannel
	// left, and would take away what commands had just made.
	last bool
	// plane is nil for a type whose packets the kernel or others move.
	plane *planeTrait
	seals
}

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
	// tenure is who has had which address or MAC so far.
	tenure tenure
}

// equal reports whether two situations are the same but for the set and what an earlier decision made of it.
func (s situation) equal(t situation) bool {
	return s.under == t.under && s.mtu == t.mtu && s.outer == t.outer && s.joiner == t.joiner &&
		slices.Equal(s.displaced, t.displaced) && maps.Equal(s.hops, t.hops)
}

// desired is what a type wants: of the kernel, State, of the data plane, spec.
type desired struct {
	kernel.State
	// spec is nil for a type whose packets the kernel moves. of says for each of its Peers whose it is.
	spec *tunnel.Spec
	of   []carriedOf
	// reached is about every subnet of every record, but for those in use of a type that has one way only.
	reached []Reached
	// notes are about records that are used, but not wholly.
	notes  []Skipped
	tenure tenure // for the next time; nil for a type that gives nothing to one peer alone
	// driven is for the type's own driver alone, which knows what it is.
	driven any
	// device is Status.Devices for a backend without devices of its own.
	device string
}

// used is how many records are used.
func (d *desired) used() (n int) {
	if d.spec == nil {
		return usedPeers(d.reached)
	}
	for i := range d.of { // those of one record stand side by side
		if i == 0 || d.of[i].record != d.of[i-1].record {
			n++
		}
	}
	return n
}

// skipped lists what is not used, or not wholly, in the form of Status.Skipped.
func (d *desired) skipped() []Skipped { return slices.Concat(skippedOf(d.reached), d.notes) }

// decision is what is wanted at present, and what it was made from.
type decision struct {
	desired           // without its spec: the data plane has the table
	from    situation // without the set
	peers   int       // that are used
	skips   []Skipped
	stale   bool // it has to be made anew
}
