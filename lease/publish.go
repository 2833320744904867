package lease

import "log/slog"

// publish computes the Set, hands it out if it is not the last one, and saves it.
func (c *Core) publish() Set {
	rules := Rules{Config: c.o.Config, Self: c.self(), Own: c.own.record().Subnets, Underlay: c.local.Underlay, Store: c.local.Store}
	set, news := c.peers.Set(rules, c.own.record())
	if news {
		c.do(Publish{set})
	}
	if c.source == sourceStore {
		c.save(false)
	}
	return set
}

// save has the cache written, or sets when that is due. If now is set it is due.
func (c *Core) save(now bool) {
	own := c.own.record()
	if !now && !c.saver.Want(c.now, len(c.peers.Memory().Peers), own.Subnets) {
		return
	}
	if c.o.Cache == nil || c.peers.Memory().ClusterID == "" || !c.proven {
		c.saver.Skip()
		return
	}
	c.saver.Begin(own.Subnets)
	c.do(SaveCache{Cached{Own: own, Memory: c.peers.Memory()}})
}

// saved notes what became of a save.
func (c *Core) saved(e Saved) {
	if c.saver.Done(c.now, e.Written, e.Err) {
		c.log(slog.LevelWarn, "the state was not cached; it is tried again", "cause", e.Err)
	}
	if c.errand == nil {
		c.wait()
	}
}
