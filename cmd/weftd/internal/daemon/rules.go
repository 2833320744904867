package daemon

import (
	"net/netip"

	"weft/routing"
	"weft/routing/hostrules"
)

// rulesConfig is what the host's rules follow from.
func (d *Daemon) rulesConfig(f Network, former []netip.Prefix) *hostrules.Config {
	o := d.cfg.Rules
	return &hostrules.Config{
		Network: f.config.NetworkConfig, Former: former, NoMasquerade: f.config.NoMasquerade,
		Masquerade: o.IPMasq, RandomFully: !o.RandomFullyDisable, Forward: o.ForwardRules, Blackhole: o.Blackhole,
		Resync: o.Resync, RouteProtocol: routing.RouteProtocol,
		Logger: d.log.With("component", "rules"),
	}
}
