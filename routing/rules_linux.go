package routing

import (
	"cmp"
	"fmt"

	"weft/routing/hostrules"
)

// makeRules makes what keeps the host's rules, if they are the backend's to keep. It has a lock and a loop of
// its own: iptables may wait for another program's lock, and what carries packets must not wait with it.
func (c *Node) makeRules() error {
	if c.cfg.Rules == nil {
		return nil
	}
	if c.about.encrypt != "" {
		if err := c.k.Do(hostrules.Supported); err != nil {
			return fmt.Errorf("nothing could keep packets from leaving in plain, so that none is carried: %w", err)
		}
	}
	cfg := *c.cfg.Rules
	cfg.Guard = c.guardNow()
	c.rules = hostrules.New(cfg)
	return nil
}

// protect tells the rules what the overlay's port needs as things are.
func (c *Node) protect() {
	if c.rules != nil {
		c.rules.Protect(c.guardNow())
	}
}

// seal tells the rules what may come and go in plain as things are.
func (c *Node) seal() {
	if c.rules == nil {
		return
	}
	under := c.under.Now.Name
	if c.away() {
		under = ""
	}
	c.rules.Seal(c.about.seal(under, c.want.reached))
}

// awaitSeal is an error until the rules of a seal, if the type has one, were seen in place once: before that
// nothing is made by which packets would go. Run tries again, and the rules are tried again by themselves. mu
// is held.
func (c *Node) awaitSeal() error {
	if c.about.encrypt == "" || c.rules == nil || c.sealed {
		return nil
	}
	if err := c.k.Do(func() error { c.sealed = c.rules.Present(); return nil }); err != nil || c.sealed {
		return err
	}
	return fmt.Errorf("no packet is let pass before the rules by which none is in plain are in place: %s",
		cmp.Or(c.rules.Status().LastError, "they are not"))
}

// guardNow is the type's guard, completed by what is known now. Weft's own data plane tells peers from
// strangers itself.
func (c *Node) guardNow() hostrules.Guard {
	g := c.about.Guard
	if g == (hostrules.Guard{}) || c.away() { // the rules are not where the port is
		return hostrules.Guard{}
	}
	g.Underlay = c.under.Now.Name
	g.Peers = g.Peers && c.plane == nil
	return g
}
