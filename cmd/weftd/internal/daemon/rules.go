package daemon

import (
	"net/netip"

	"weft/cmd/internal/control"
	"weft/routing"
	"weft/routing/hostrules"
)

// rulesConfig is what the host's rules follow from on this footing.
func (d *Daemon) rulesConfig(f footing, former []netip.Prefix) (*hostrules.Config, error) {
	never, err := hostrules.ParseNoMasquerade(f.network)
	if err != nil {
		return nil, err
	}
	o := d.cfg.Rules
	return &hostrules.Config{
		Network: f.network, Former: former, NoMasquerade: never,
		Masquerade: o.IPMasq, RandomFully: !o.RandomFullyDisable, Forward: o.ForwardRules, Blackhole: o.Blackhole,
		Resync: o.Resync, RouteProtocol: routing.RouteProtocol,
		Logger: d.log.With("component", "rules"),
	}, nil
}

// rulesReason returns why the rules keep the node from being ready, which is so if packets of pods should
// be masqueraded and are not, or if nothing may leave in plain. Any other fault of the rules is only a note.
func (d *Daemon) rulesReason(g *generation) string {
	st := g.backend.Status()
	if !d.cfg.Rules.IPMasq && st.Encrypt == "" {
		return ""
	}
	if !st.Rules.InPlace {
		return st.Rules.LastError
	}
	return ""
}

func rulesStatus(st hostrules.Status) control.Rules {
	return control.Rules{
		Firewall: st.Firewall, InPlace: st.InPlace, Error: st.LastError, Repaired: st.Repaired, Notes: st.Notes,
		PodsDropped: st.Dropped.Pods, StrangersDropped: st.Dropped.Strangers, PlainDropped: st.Dropped.Plain,
	}
}
