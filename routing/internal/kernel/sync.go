package kernel

import (
	"errors"
	"fmt"
)

// changer is the part of the kernel that applying a plan needs.
type changer interface {
	SetLink(Link) error
	AddAddr(Addr) error
	DelAddr(Addr) error
	AddRoute(Route) error
	ReplaceRoute(Route) error
	DelRoute(Route) error
	SetNeigh(Neigh) error
	DelNeigh(Neigh) error
	SetFDB(FDB) error
	DelFDB(FDB) error
}

// Apply makes the changes in order: adds before deletes, so that there is
// no moment without a route. It tries everything and joins the errors; done is how
// many changes succeeded.
func Apply(k changer, c Changes) (done int, err error) {
	var t tried
	each(&t, c.SetLinks, k.SetLink, "set link")
	each(&t, c.AddAddrs, k.AddAddr, "add address")
	each(&t, c.SetNeighs, k.SetNeigh, "set neighbour")
	each(&t, c.SetFDBs, k.SetFDB, "set forwarding entry")
	each(&t, c.AddRoutes, k.AddRoute, "add route")
	each(&t, c.ReplaceRoutes, k.ReplaceRoute, "replace route")
	each(&t, c.DelRoutes, k.DelRoute, "delete route")
	each(&t, c.DelNeighs, k.DelNeigh, "delete neighbour")
	each(&t, c.DelFDBs, k.DelFDB, "delete forwarding entry")
	each(&t, c.DelAddrs, k.DelAddr, "delete address")
	for _, x := range c.Conflicts {
		t.faults = append(t.faults, errors.New(x.String()))
	}
	return t.done, errors.Join(t.faults...)
}

// tried counts what succeeded and collects what did not.
type tried struct {
	done   int
	faults []error
}

func each[T fmt.Stringer](t *tried, l []T, change func(T) error, what string) {
	for _, x := range l {
		if err := change(x); err != nil {
			t.faults = append(t.faults, fmt.Errorf("%s %s: %w", what, x, err))
			continue
		}
		t.done++
	}
}
