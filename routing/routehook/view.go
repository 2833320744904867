package routehook

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Schema is the version of the documents: another number means that a reader of this one would misunderstand
// them.
const Schema = 1

// View is what one node knows: all routes of the overlay, its own included.
type View struct {
	SchemaVersion int `json:"schema_version"`
	// Node is the node's identity, and Name what people call it.
	Node string `json:"node"`
	Name string `json:"name,omitempty"`
	// Instance is another text for each process, and Generation grows with each view of an instance that differs
	// from the one before.
	Instance   string `json:"instance"`
	Generation uint64 `json:"generation"`
	// Lifetime is for how many seconds the view counts; it is given again long before that.
	Lifetime int64 `json:"lifetime_seconds"`
	// Networks are those of the overlay: every Subnet lies in one of them.
	Networks []netip.Prefix `json:"networks"`
	// Routes are in the order of their subnets, each once.
	Routes []Route `json:"routes"`
}

// Route is one that the controller is asked for.
type Route struct {
	// Subnet is where the route leads, and NextHop the node's own address in the same family.
	Subnet  netip.Prefix `json:"subnet"`
	NextHop netip.Addr   `json:"next_hop"`
	// Node is the identity of the node that has the subnet, "" if its record has none, and Name what people call
	// it.
	Node string `json:"node,omitempty"`
	Name string `json:"name,omitempty"`
	// Own says that it is the node's that gives the view. Its own word counts more than others'.
	Own bool `json:"own,omitempty"`
}

// Answer is what a controller says of a view.
type Answer struct {
	SchemaVersion int `json:"schema_version"`
	// Instance and Generation are those of the view that it is about.
	Instance   string `json:"instance"`
	Generation uint64 `json:"generation"`
	// Routes has a verdict for each route of the view, in any order.
	Routes []Verdict `json:"routes"`
}

// Verdict is what became of one route.
type Verdict struct {
	Subnet netip.Prefix `json:"subnet"`
	State  State        `json:"state"`
	// Reason is a sentence for people; "" if there is nothing to say.
	Reason string `json:"reason,omitempty"`
}

// State is what became of a route.
type State string

// The states.
const (
	// Accepted says that packets for the subnet get to the next hop.
	Accepted State = "accepted"
	// Pending says that they do not yet, and will without anybody's doing.
	Pending State = "pending"
	// Refused says that they will not, for a reason that somebody has to mend.
	Refused State = "refused"
)

// MaxLifetime bounds View.Lifetime: longer than any maintenance that nodes should outlive.
const MaxLifetime = 7 * 24 * time.Hour

// maxRoutes bounds how many routes a document may have, far more than a network has subnets for nodes.
const maxRoutes = 1 << 18

// Check returns what is wrong with a view that somebody sent, one error for all.
func (v View) Check() error {
	var faults []error
	bad := func(format string, a ...any) {
		if len(faults) < 8 { // as many as anybody reads
			faults = append(faults, fmt.Errorf(format, a...))
		}
	}
	if v.SchemaVersion != Schema {
		return fmt.Errorf("schema_version is %d: this is %d", v.SchemaVersion, Schema)
	}
	if v.Node == "" || v.Instance == "" {
		bad("node or instance is empty")
	}
	if v.Lifetime < 1 || v.Lifetime > int64(MaxLifetime/time.Second) {
		bad("lifetime_seconds is %d: want 1 to %d", v.Lifetime, int64(MaxLifetime/time.Second))
	}
	if len(v.Routes) > maxRoutes {
		return fmt.Errorf("%d routes: at most %d are taken", len(v.Routes), maxRoutes)
	}
	seen := make(map[netip.Prefix]bool, len(v.Routes))
	for _, r := range v.Routes {
		switch {
		case !r.Subnet.IsValid() || r.Subnet != r.Subnet.Masked():
			bad("subnet %v is no network", r.Subnet)
		case !r.NextHop.IsValid() || r.NextHop.Zone() != "" || r.NextHop.Is4In6() ||
			r.NextHop.Is4() != r.Subnet.Addr().Is4():
			bad("next_hop %v of %v is no address of the same family", r.NextHop, r.Subnet)
		case seen[r.Subnet]:
			bad("subnet %v is there twice", r.Subnet)
		case !Inside(r.Subnet, v.Networks):
			bad("subnet %v is in none of the networks %v", r.Subnet, v.Networks)
		}
		seen[r.Subnet] = true
	}
	return errors.Join(faults...)
}

// Inside reports whether p lies in one of networks.
func Inside(p netip.Prefix, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool {
		return n.Bits() <= p.Bits() && n.Contains(p.Addr())
	})
}

// check returns what is wrong with an answer to v.
func (a Answer) check(v View) error {
	switch {
	case a.SchemaVersion != Schema:
		return fmt.Errorf("it answers with schema_version %d: this is %d", a.SchemaVersion, Schema)
	case a.Instance != v.Instance || a.Generation != v.Generation:
		return fmt.Errorf("it answers about generation %d of %q, and generation %d of %q was given", a.Generation,
			a.Instance, v.Generation, v.Instance)
	}
	for _, r := range a.Routes {
		switch r.State {
		case Accepted, Pending, Refused:
		default:
			return fmt.Errorf("it answers with the state %q for %v: want %s, %s or %s", r.State, r.Subnet, Accepted,
				Pending, Refused)
		}
	}
	return nil
}

// Verdicts returns what the answer says of the routes, by subnet.
func (a Answer) Verdicts() map[netip.Prefix]Verdict {
	out := make(map[netip.Prefix]Verdict, len(a.Routes))
	for _, r := range a.Routes {
		out[r.Subnet] = r
	}
	return out
}
