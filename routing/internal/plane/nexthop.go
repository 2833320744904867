package plane

import (
	"errors"
	"net/netip"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/tunnel/port"
)

// hopRoutes are the kernel's answers for the outer addresses of all peers.
type hopRoutes struct {
	// via is the neighbour of each address; the zero Addr if frames cannot be sent there.
	via map[netip.Addr]netip.Addr
	// wanted are the neighbours in via.
	wanted map[netip.Addr]bool
	// others are the links that addresses are routed to in place of the underlay's: when one of
	// these goes, so does the route, without a word about it in IPv4.
	others map[int]bool
}

func newHopRoutes(size int) hopRoutes {
	return hopRoutes{make(map[netip.Addr]netip.Addr, size), map[netip.Addr]bool{}, map[int]bool{}}
}

// add notes the kernel's answer for dst, and reports whether there was one.
func (r hopRoutes) add(dst netip.Addr, a kernel.Answer, link kernel.EtherInfo) bool {
	if errors.Is(a.Err, kernel.ErrNoAnswer) {
		return false
	}
	via, err := a.Neighbour(dst, link)
	r.via[dst] = via
	switch {
	case err == nil:
		r.wanted[via] = true
	case a.Err == nil && a.Link != link.Index:
		r.others[a.Link] = true
	}
	return true
}

// nextHops joins routes and neighbours. macs are the link addresses of neighbours, local
// is the link's own. An address whose neighbour is unknown is left out.
func nextHops(r hopRoutes, macs map[netip.Addr]encap.MAC, local encap.MAC) map[netip.Addr]port.NextHop {
	hops := make(map[netip.Addr]port.NextHop, len(r.via))
	for dst, via := range r.via {
		if mac, ok := macs[via]; ok && mac != local {
			hops[dst] = port.NextHop{Local: local, Remote: mac}
		}
	}
	return hops
}

// neighbourMACs are the link addresses of those entries that are usable and wanted.
func neighbourMACs(ns []kernel.Neighbour, wanted map[netip.Addr]bool) map[netip.Addr]encap.MAC {
	macs := make(map[netip.Addr]encap.MAC, min(len(ns), len(wanted)))
	for _, n := range ns {
		if wanted[n.Addr] && n.Usable() {
			macs[n.Addr] = n.MAC
		}
	}
	return macs
}

// silentNeighbours are those that the kernel asked for in vain: FAILED, and until they answer also while it
// asks again. was are those of before, wanted the ones that matter.
func silentNeighbours(was map[netip.Addr]bool, ns []kernel.Neighbour,
	wanted map[netip.Addr]bool) map[netip.Addr]bool {
	silent := map[netip.Addr]bool{}
	for a := range was {
		if wanted[a] {
			silent[a] = true
		}
	}
	for _, n := range ns {
		switch {
		case n.Usable():
			delete(silent, n.Addr)
		case n.State&kernel.NudFailed != 0 && wanted[n.Addr]:
			silent[n.Addr] = true
		}
	}
	return silent
}

// undeliverable are the outer addresses behind silent neighbours, or all if the link has no carrier.
func (r hopRoutes) undeliverable(silent map[netip.Addr]bool, carrier bool) map[netip.Addr]bool {
	if carrier && len(silent) == 0 {
		return nil
	}
	to := map[netip.Addr]bool{}
	for dst, via := range r.via {
		if via.IsValid() && (!carrier || silent[via]) {
			to[dst] = true
		}
	}
	return to
}
