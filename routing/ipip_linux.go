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

// ipipDevices are what the driver needs of a kernel.
type ipipDevices interface {
	IPIP(name string) (kernel.IPIP, error)
	AddIPIP(name string, local netip.Addr) error
	DelLink(name string) error
	SetIPv6(name string, on bool) error
	Loosen(name string) error
}

// ipipDriver makes the kernel's device of type ipip. Addresses, MTU and routes are of the kernel's state.
type ipipDriver struct {
	idle
	k   ipipDevices
	log *slog.Logger
}

// sync implements driver. A device whose source is another address is made anew, and with it go its routes, which the kernel's state
// then has put back; one of somebody else's is left as it is.
func (a *ipipDriver) sync(_ context.Context, _ situation, d *desired) outcome {
	const name = kernel.IPIPName
	if !d.ipip.IsValid() {
		return outcome{}
	}
	have, err := a.k.IPIP(name)
	switch {
	case errors.Is(err, kernel.ErrNoLink):
	case err != nil:
		return outcome{devices: err, absent: []string{name}}
	case have.Alias != "" && have.Alias != kernel.Alias:
		return outcome{absent: []string{name}, devices: fmt.Errorf("link %s is somebody else's, who calls it %q: rename it, or delete it if nothing uses it", name, have.Alias)}
	case have.Other != "" || have.Local != d.ipip:
		a.log.Info("making the device anew", "event", event.DeviceRepaired, "device", name, "local", have.Local, "want", d.ipip, "other", have.Other)
		if err := a.k.DelLink(name); err != nil {
			return outcome{devices: err, absent: []string{name}}
		}
		err = kernel.ErrNoLink
	}
	if err != nil {
		if err := a.k.AddIPIP(name, d.ipip); err != nil {
			return outcome{devices: err, absent: []string{name}}
		}
	}
	return outcome{notes: kernel.SettingNotes(name, errors.Join(a.k.SetIPv6(name, false), a.k.Loosen(name)))}
}
