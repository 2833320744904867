package routing

import "weft/lease"

// typeHostGW is flannel's host-gw: plain routes between nodes on one link.
const typeHostGW = "host-gw"

func hostGWType() Type {
	return Type{Name: typeHostGW, Settings: func(lease.NetworkConfig, func(string) bool) settings {
		return new(hostGW)
	}}
}

// hostGW routes a peer's subnets to its address on the shared link.
type hostGW struct{ plain }

func (hostGW) Facts() Facts {
	return Facts{Carrier: CarrierKernel, Direct: true, record: typeHostGW, path: PathKernel, asksHops: true}
}

func (g hostGW) want(s situation) desired {
	d := desired{device: s.under.Name, ways: s.ways(typeHostGW)}
	for w := range d.used() {
		if !w.direct() {
			continue
		}
		h, known := s.hops[w.public]
		why := h.Indirect(w.public, s.under.Name)
		switch {
		case !known:
			w.skip("the way to %v is not known yet", w.public)
		case why != "":
			w.skip("%s: host-gw needs all nodes on one link; vxlan with DirectRouting does not", why)
		default:
			w.How = HowRoute
			d.Routes = append(d.Routes, w.route(s))
		}
	}
	return d
}
