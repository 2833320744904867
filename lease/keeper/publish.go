package keeper

import (
	"weft/lease/belief"
)

// publish hands out the Set if it is not the last one, and has it saved.
func (c *Core) publish() {
	own := c.own.record()
	c.Publish(belief.Rules{Config: c.o.Config, Self: c.self(), Own: own.Subnets, Underlay: c.Local.Underlay,
		Store: c.Local.Store}, own)
	c.Save(own, false)
}
