package routecontrol

import (
	"maps"
	"time"
)

// lives tells views that ended because their nodes were removed from those that ended because nobody was
// heard: where most end together it is more likely that nodes cannot be heard, or that this process stood
// still, than that they are gone. The lock of the Controller guards it.
type lives struct {
	// begun is since when nodes may be expected to give their views anew: nothing is removed for Options.Grace
	// after it.
	begun time.Time
	// lost has the nodes whose views' time was over, and when that was found: those of the last Options.Grace,
	// or all while no view counts.
	lost map[string]time.Time
	// emptied says that somebody removed the last node.
	emptied bool
}

// heard notes that a node gave a view.
func (l *lives) heard(node string) {
	delete(l.lost, node)
	l.emptied = false
}

// removed notes that somebody removed a node, which had a view, or else may have been lost, and how many
// views are left.
func (l *lives) removed(node string, had bool, left int) {
	_, lost := l.lost[node]
	delete(l.lost, node)
	if (had || lost) && left+len(l.lost) == 0 {
		l.emptied = true
	}
}

// expire drops the views whose time is over, and reports whether routes that nobody wants have to stay. mu is
// held.
func (c *Controller) expire(now time.Time) (keep bool) {
	l := &c.lives
	maps.DeleteFunc(l.lost, func(_ string, at time.Time) bool {
		return len(c.views) > 0 && now.Sub(at) > c.o.Grace
	})
	fewer := false
	for n, h := range c.views {
		if !now.Before(h.expires) {
			delete(c.views, n)
			l.lost[n], fewer = now, true
			c.o.Logger.Warn("a node's view counts no more", "node", n, "name", h.view.Name)
		}
	}
	silent := len(c.views) == 0 && !l.emptied
	switch {
	case silent: // whoever is heard first has the others to wait for
		l.begun = now
		if fewer {
			c.o.Logger.Warn("no node's view counts any more: routes stay until nodes are heard again, or all are "+
				"removed", "nodes", len(l.lost))
		}
	case fewer && len(l.lost) > len(c.views):
		l.begun = now
		c.o.Logger.Warn("most nodes' views ended together: no route is removed for a while", "nodes", len(l.lost),
			"left", len(c.views), "grace", c.o.Grace)
	}
	return silent || now.Sub(l.begun) < c.o.Grace
}
