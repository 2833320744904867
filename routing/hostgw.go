package routing

import (
	"encoding/json"

	"weft/lease"
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
	for w := range s.ways(typeHostGW) {
		if w.direct() {
			h, known := s.hops[w.f.public]
			why := h.Indirect(w.f.public, s.under.Name)
			switch {
			case !known:
				w.report = w.report.skip("the way to %v is not known yet", w.f.public)
			case why != "":
				w.report = w.report.skip("%s: host-gw needs all nodes on one link; vxlan with DirectRouting does not",
					why)
			default:
				w.report.How = HowRoute
				d.Routes = append(d.Routes, w.route(s))
			}
		}
		d.reached = append(d.reached, w.report)
	}
	return d
}
