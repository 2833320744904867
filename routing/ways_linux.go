package routing

import (
	"net/netip"

	"weft/lease"
)

// FindDisplaced finds those of addrs that the overlay of c cuts this host off from, as things
// are now. It lists routes only if one of addrs is within the overlay.
func FindDisplaced(k *Kernel, c lease.NetworkConfig, addrs []netip.Addr) ([]Displaced, error) {
	addrs = inside(networks(c), addrs)
	if len(addrs) == 0 {
		return nil, nil
	}
	w, err := readWays(k)
	if err != nil {
		return nil, err
	}
	return w.Displaced(networks(c), addrs), nil
}

// readWays lists what Ways is made from.
func readWays(k *Kernel) (Ways, error) {
	ds, err := k.devices()
	if err != nil {
		return Ways{}, err
	}
	as, err := k.addrInfos()
	if err != nil {
		return Ways{}, err
	}
	names := make(map[int]string, len(ds))
	for _, d := range ds {
		names[d.Index] = d.Name
	}
	rs, err := k.mainRoutes(names)
	if err != nil {
		return Ways{}, err
	}
	return newWays(ds, as, rs), nil
}
