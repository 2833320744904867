package daemon

import (
	"context"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
	"weft/routing/hostrules"
)

// newRules makes the Rules of g, whose backend is there already.
func (d *Daemon) newRules(g *generation) (*hostrules.Rules, error) {
	never, err := hostrules.ParseNoMasquerade(g.footing.network)
	if err != nil {
		return nil, err
	}
	f := d.cfg.Rules
	return hostrules.New(hostrules.Config{
		Network: g.footing.network, NoMasquerade: never,
		Masquerade: f.IPMasq, RandomFully: !f.RandomFullyDisable, Forward: f.ForwardRules, Blackhole: f.Blackhole,
		Resync: f.Resync, RouteProtocol: routing.RouteProtocol,
		Guard: func() hostrules.Guard {
			return routing.FactsOf(g.footing.network).GuardNow(g.backend.Status())
		},
		Logger: d.log.With("component", "rules"),
	})
}

// apply makes backend and rules fit s. The rules come first, so that no packet passes without them, unless those
// of an earlier run are there; then packets do not wait for iptables. The error is the backend's; the rules log
// theirs.
func (g *generation) apply(ctx context.Context, s lease.Set) error {
	if !g.rules.Present() {
		_ = g.rules.Apply(ctx, s)
		return g.backend.Apply(ctx, s)
	}
	err := g.backend.Apply(ctx, s)
	_ = g.rules.Apply(ctx, s)
	return err
}

// rulesReason returns why the rules keep the node from being ready, which is so if packets of pods should
// be masqueraded and are not. Any other fault of the rules is only a note.
func (d *Daemon) rulesReason(g *generation) string {
	if !d.cfg.Rules.IPMasq {
		return ""
	}
	if st := g.rules.Status(); !st.InPlace {
		return st.LastError
	}
	return ""
}

func rulesStatus(st hostrules.Status) control.Rules {
	return control.Rules{
		Firewall: st.Firewall, InPlace: st.InPlace, Error: st.LastError, Repaired: st.Repaired, Notes: st.Notes,
		PodsDropped: st.Dropped.Pods, StrangersDropped: st.Dropped.Strangers,
	}
}
