package routing

import (
	"encoding/json"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// typeHostGW is flannel's host-gw: plain routes between nodes on one link.
const typeHostGW = "host-gw"

func hostGWType() Type {
	return Type{Name: typeHostGW, Settings: func(lease.NetworkConfig, func(string) bool) settings {
		return new(hostGW)
	}}
}

// hostGW routes a peer's subnets to its address on the shared link.
type hostGW struct{ plain }

func (hostGW) Facts() Facts { return Facts{Carrier: CarrierKernel, Direct: true} }

func (hostGW) trait() trait {
	return trait{record: typeHostGW, path: PathKernel, asksHops: true}
}

func (hostGW) publish() (data, v6data json.RawMessage) { return nil, nil }

func (g hostGW) want(s situation) desired {
	d := desired{device: s.under.Name}
	for _, r := range s.set.Peers {
		for _, f := range families(r, s.set, s.under) {
			report := f.reached(r, typeHostGW)
			h, known := s.hops[f.public]
			switch {
			case report.How == HowSkipped:
			case !f.public.IsValid() || !f.local.IsValid():
				report = report.skip("it has no %s, or this node has none", f.publicKey)
			case !known:
				report = report.skip("the way to %v is not known yet", f.public)
			default:
				if why := h.Indirect(f.public, s.under.Name); why != "" {
					report = report.skip("%s: host-gw needs all nodes on one link; vxlan with DirectRouting does not", why)
					break
				}
				report.How = HowRoute
				d.Routes = append(d.Routes, kernel.PeerRoute(f.subnet, f.public, s.under.Name, routeMTU(r, f.six, s.mtu)))
			}
			d.reached = append(d.reached, report)
		}
	}
	return d
}
