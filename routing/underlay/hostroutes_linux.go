package underlay

import (
	"net/netip"

	"weft/routing/internal/kernel"
)

// FindDisplaced finds the addresses of addrs that an overlay with these networks cuts this host off from, by
// the routes that the kernel has now. It lists routes only if one of addrs is within the overlay.
func FindDisplaced(k *kernel.Kernel, networks []netip.Prefix, addrs []netip.Addr) ([]Displaced, error) {
	addrs = inside(networks, addrs)
	if len(addrs) == 0 {
		return nil, nil
	}
	routes, err := readHostRoutes(k)
	if err != nil {
		return nil, err
	}
	return routes.Displaced(networks, addrs), nil
}

// readHostRoutes lists what HostRoutes is made from.
func readHostRoutes(k *kernel.Kernel) (HostRoutes, error) {
	ds, err := k.Devices()
	if err != nil {
		return HostRoutes{}, err
	}
	as, err := k.AddrInfos()
	if err != nil {
		return HostRoutes{}, err
	}
	names := make(map[int]string, len(ds))
	for _, d := range ds {
		names[d.Index] = d.Name
	}
	rs, err := k.MainRoutes(names)
	if err != nil {
		return HostRoutes{}, err
	}
	return newHostRoutes(ds, as, rs), nil
}
