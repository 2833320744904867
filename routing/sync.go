package routing

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
}

// applyChanges makes the changes in order: adds before deletes, so that there is
// no moment without a route. It tries everything and joins the errors; done is how
// many succeeded.
func applyChanges(k changer, c Changes) (done int, err error) {
	var faults []error
	step := func(err error, format string, args ...any) {
		if err == nil {
			done++
			return
		}
		faults = append(faults, fmt.Errorf(format+": %w", append(args, err)...))
	}
	for _, l := range c.SetLinks {
		step(k.SetLink(l), "set link %s", l.Name)
	}
	for _, a := range c.AddAddrs {
		step(k.AddAddr(a), "add address %v dev %s", a.Prefix, a.Link)
	}
	for _, r := range c.AddRoutes {
		step(k.AddRoute(r), "add route %v dev %s", r.Dst, r.Link)
	}
	for _, r := range c.ReplaceRoutes {
		step(k.ReplaceRoute(r), "replace route %v dev %s", r.Dst, r.Link)
	}
	for _, r := range c.DelRoutes {
		step(k.DelRoute(r), "delete route %v dev %s", r.Dst, r.Link)
	}
	for _, a := range c.DelAddrs {
		step(k.DelAddr(a), "delete address %v dev %s", a.Prefix, a.Link)
	}
	for _, x := range c.Conflicts {
		faults = append(faults, errors.New(x.String()))
	}
	return done, errors.Join(faults...)
}
