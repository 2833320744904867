package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"weft/routing/event"
	"weft/routing/internal/kernel"
)

// ipipDevices are what the actor needs of a kernel.
type ipipDevices interface {
	IPIP(name string) (kernel.IPIP, error)
	AddIPIP(name string, local netip.Addr) error
	DelLink(name string) error
	SetIPv6(name string, on bool) error
	Loosen(name string) error
}

// ipipActor makes the kernel's device of type ipip. Addresses, MTU and routes are of the kernel's state.
type ipipActor struct {
	k   ipipDevices
	log *slog.Logger
}

var (
	_ actor    = (*ipipActor)(nil)
	_ preparer = (*ipipActor)(nil)
)

// prepare implements preparer. A device whose source is another address is made anew, and with it go its routes, which the kernel's state
// then has put back; one of somebody else's is left as it is.
func (a *ipipActor) prepare(d *desired, _ int) (absent, notes []string, err error) {
	const name = kernel.IPIPName
	if !d.ipip.IsValid() {
		return nil, nil, nil
	}
	have, err := a.k.IPIP(name)
	switch {
	case errors.Is(err, kernel.ErrNoLink):
	case err != nil:
		return []string{name}, nil, err
	case have.Alias != "" && have.Alias != kernel.Alias:
		return []string{name}, nil, fmt.Errorf("link %s is somebody else's, who calls it %q: rename it, or delete it if nothing uses it", name, have.Alias)
	case have.Other != "" || have.Local != d.ipip:
		a.log.Info("making the device anew", "event", event.DeviceRepaired, "device", name, "local", have.Local, "want", d.ipip, "other", have.Other)
		if err := a.k.DelLink(name); err != nil {
			return []string{name}, nil, err
		}
		err = kernel.ErrNoLink
	}
	if err != nil {
		if err := a.k.AddIPIP(name, d.ipip); err != nil {
			return []string{name}, nil, err
		}
	}
	return nil, kernel.SettingNotes(name, errors.Join(a.k.SetIPv6(name, false), a.k.Loosen(name))), nil
}

// act implements actor: there is nothing to do for single peers.
func (*ipipActor) act(context.Context, situation) outcome { return outcome{} }

// stop implements actor. The device goes on carrying packets without us.
func (*ipipActor) stop(context.Context) error { return nil }

// close implements preparer.
func (*ipipActor) close() error { return nil }
