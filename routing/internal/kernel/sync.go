package kernel

import (
	"errors"
	"fmt"
)

// changer is the part of the kernel that applying a plan needs.
type changer interface {
	DelLink(name string) error
	AddDevice(Device) error
	Settle(Device) error
	SetDevice(d Device, names []string) (done int, err error)
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

// Result is what applying a plan came to.
type Result struct {
	// Done is how many changes succeeded.
	Done int
	// Missing are the devices that could not be made: what would be on them was not tried.
	Missing []string
	// Settings are what could not be set of devices; they work without, if less well.
	Settings []error
}

// Apply makes the changes in order: devices first, since all else is on them, then adds before deletes, so
// that there is no moment without a route. It tries everything and joins the errors.
func Apply(k changer, c Changes) (Result, error) {
	var t tried
	for _, s := range c.Strangers {
		t.faults = append(t.faults, fmt.Errorf("not ours: %s", s.Why))
	}
	for _, d := range c.Devices {
		t.device(k, d)
	}
	c = c.without(t.Missing)
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
	return t.Result, errors.Join(t.faults...)
}

// tried counts what succeeded and collects what did not.
type tried struct {
	Result
	faults []error
}

// device brings one device to what is wanted. Its settings come before it is up: with the other
// family on, the kernel would greet the tunnel at once.
func (t *tried) device(k changer, c DeviceChange) {
	fresh, set := c.Create || c.Recreate != "", c.Set
	if c.Recreate != "" {
		if err := k.DelLink(c.Want.Name); err != nil {
			t.faults = append(t.faults, err)
			return
		}
	}
	if fresh {
		if err := k.AddDevice(c.Want); err != nil {
			t.faults, t.Missing = append(t.faults, err), append(t.Missing, c.Want.Name)
			return
		}
		t.Done++
		set = []string{"alias", "up"}
	}
	if err := k.Settle(c.Want); err != nil {
		t.Settings = append(t.Settings, err)
	}
	n, err := k.SetDevice(c.Want, set)
	if !fresh {
		t.Done += n
	}
	if err != nil {
		t.faults = append(t.faults, err)
	}
	if errors.Is(err, ErrNoLink) {
		t.Missing = append(t.Missing, c.Want.Name)
	}
}

// without leaves out what needs one of those links.
func (c Changes) without(links []string) Changes {
	if len(links) > 0 {
		c.AddAddrs, c.SetNeighs, c.SetFDBs = off(links, c.AddAddrs), off(links, c.SetNeighs), off(links, c.SetFDBs)
		c.AddRoutes, c.ReplaceRoutes = off(links, c.AddRoutes), off(links, c.ReplaceRoutes)
	}
	return c
}

func each[T fmt.Stringer](t *tried, l []T, change func(T) error, what string) {
	for _, x := range l {
		if err := change(x); err != nil {
			t.faults = append(t.faults, fmt.Errorf("%s %s: %w", what, x, err))
			continue
		}
		t.Done++
	}
}
