package plane

import (
	"weft/tunnel/port"
)

// SetOutlet has superpackets leave the ports of path raw as choose says for IPv4 or IPv6. It is told
// whether the port can send them whole, and a run in one send.
func (p *Plane) SetOutlet(choose func(six, whole, runs bool) port.OutletChoice) {
	for i := range p.sockets {
		s := &p.sockets[i]
		if s.frames == nil {
			continue
		}
		raw := s.frames.port
		on := map[port.Offload]bool{}
		for _, o := range raw.Offloads() {
			on[o.Offload] = o.State == port.OffloadOn
		}
		o := choose(s.local.Addr().Is6(), on[port.OffloadTunnel] && s.frames.note == "", on[port.OffloadGSO])
		if raw.Outlet().Chosen != o {
			raw.SetOutlet(o)
			p.log.Info("superpackets leave", "event", port.EventOutletChosen, "local", s.local,
				"outlet", o.Outlet.String(), "because", o.Why)
		}
	}
}
