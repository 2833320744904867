package daemon

import (
	"net/netip"

	"weft/routing"
	"weft/routing/hostrules"
)

// rulesConfig is what the host's rules follow from on this footing.
func (d *Daemon) rulesConfig(f footing, former []netip.Prefix) *hostrules.Config {
	o := d.cfg.Rules
	return &hostrules.Config{
		Network: f.network.NetworkConfig, Former: former, NoMasquerade: f.network.NoMasquerade,
		Masquerade: o.IPMasq, RandomFully: !o.RandomFullyDisable, Forward: o.ForwardRules, Blackhole: o.Blackhole,
		Resync: o.Resync, RouteProtocol: routing.RouteProtocol,
		Logger: d.log.With("component", "rules"),
	}
}
