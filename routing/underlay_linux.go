package routing

import (
	"errors"
	"fmt"
)

// ChooseUnderlay chooses the underlay interface among those that k has now. The
// error wraps ErrNoUnderlay if none passes.
func ChooseUnderlay(k *Kernel, o UnderlayOptions) (Underlay, error) {
	o.CanReach, o.PublicIP, o.PublicIPv6 = o.CanReach.Unmap(), o.PublicIP.Unmap(), o.PublicIPv6.Unmap()
	l, err := readListing(k, o)
	if err != nil {
		return Underlay{}, fmt.Errorf("choose underlay interface: %w", err)
	}
	return choose(l, o)
}

// readListing reads what choose needs, and no more: default routes only if no interface is named.
func readListing(k *Kernel, o UnderlayOptions) (listing, error) {
	var l listing
	ds, err := k.devices()
	if err != nil {
		return l, err
	}
	for _, d := range ds {
		l.links = append(l.links, info(d))
	}
	if l.addrs, err = k.addrInfos(); err != nil {
		return l, err
	}
	if o.CanReach.IsValid() {
		l.reach = k.reach(o.CanReach)
	}
	if !o.explicit() {
		if l.defaults, err = k.defaultRoutes(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// underlayListing reads the state of one link and all addresses.
func underlayListing(k *Kernel, name string) (listing, error) {
	var l listing
	d, err := k.device(name)
	switch {
	case err == nil:
		l.links = []linkInfo{info(d)}
	case !errors.Is(err, errNoLink):
		return l, err
	}
	l.addrs, err = k.addrInfos()
	return l, err
}

func info(d device) linkInfo {
	return linkInfo{index: d.Index, mtu: d.MTU, name: d.Name, alias: d.Alias, up: d.Up}
}
