package underlay

import (
	"errors"
	"fmt"

	"weft/routing/internal/kernel"
)

// Choose chooses the underlay interface among those that k has now. The
// error wraps ErrNone if none passes.
func Choose(k *kernel.Kernel, o Options) (Link, error) {
	o.CanReach, o.PublicIP, o.PublicIPv6 = o.CanReach.Unmap(), o.PublicIP.Unmap(), o.PublicIPv6.Unmap()
	l, err := readListing(k, o)
	if err != nil {
		return Link{}, fmt.Errorf("choose underlay interface: %w", err)
	}
	return choose(l, o)
}

// readListing reads what choose needs, and no more: default routes only if no interface is named.
func readListing(k *kernel.Kernel, o Options) (listing, error) {
	var l listing
	var err error
	if l.links, err = k.Devices(); err != nil {
		return l, err
	}
	if l.addrs, err = k.AddrInfos(); err != nil {
		return l, err
	}
	if o.CanReach.IsValid() {
		l.reach = k.Reach(o.CanReach)
	}
	if !o.explicit() {
		if l.defaults, err = k.DefaultRoutes(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// listingOf reads the state of one link and all addresses.
func listingOf(k *kernel.Kernel, name string) (listing, error) {
	var l listing
	d, err := k.Device(name)
	switch {
	case err == nil:
		l.links = []kernel.Device{d}
	case !errors.Is(err, kernel.ErrNoLink):
		return l, err
	}
	l.addrs, err = k.AddrInfos()
	return l, err
}
