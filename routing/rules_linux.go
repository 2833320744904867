package routing

import (
	"weft/routing/hostrules"
	"weft/tunnel"
)

// makeRules makes what keeps the host's rules, if they are the backend's to keep. It has a lock and a loop of its own:
// iptables may wait for another program's lock, and what carries packets must not wait with it.
func (c *controller) makeRules() error {
	if c.cfg.Rules == nil {
		return nil
	}
	cfg := *c.cfg.Rules
	cfg.Guard = c.guardNow()
	var err error
	c.rules, err = hostrules.New(cfg)
	return err
}

// protect tells the rules what the overlay's port needs as things are.
func (c *controller) protect() {
	if c.rules != nil {
		c.rules.Protect(c.guardNow())
	}
}

// guardNow is the type's guard, completed by what is known now. Weft's own data plane tells peers from strangers itself.
func (c *controller) guardNow() hostrules.Guard {
	g := c.cfg.guard
	if g == (hostrules.Guard{}) || c.away() { // the rules are not where the port is
		return hostrules.Guard{}
	}
	g.Underlay = c.under.Now.Name
	g.Peers = g.Peers && c.plane == nil
	if c.Status().Path != tunnel.PathRaw.String() {
		g.Local4, g.Local6 = c.under.Now.Addr4, c.under.Now.Addr6
	}
	return g
}
