package routing

import (
	"slices"
	"time"

	"weft/routing/internal/kernel"
)

// shadowWatch keeps what was found out about routes that shadow peers, since listing all routes costs much on
// a host that has many.
type shadowWatch struct {
	asked time.Time
	took  time.Duration
	notes []string
}

// shadowShare is after how many times as long as listing the routes took they are listed again, so that a host
// with a full table of the Internet spends no more than a hundredth of its time with it.
const shadowShare = 100

// shadows enters into the status, and logs, which routes of others take packets for peers out of the overlay.
// The monitor reports such a route when it comes.
func (c *Node) shadows(r *round) {
	w := &c.shadow
	if now := time.Now(); now.Sub(w.asked) >= shadowShare*w.took {
		before := w.notes
		w.asked, w.notes = now, c.findShadows()
		w.took = time.Since(now)
		for _, n := range w.notes {
			if !slices.Contains(before, n) {
				c.log.Warn("a foreign route shadows a peer", "note", n)
			}
		}
		if len(before) > 0 && len(w.notes) == 0 {
			c.log.Info("no foreign route shadows a peer any more")
		}
	}
	r.note(w.notes...)
}

func (c *Node) findShadows() []string {
	if len(c.set.Peers) == 0 || len(c.inPlace.Routes) == 0 {
		return nil
	}
	ds, err := c.k.Devices()
	if err != nil {
		return c.shadow.notes
	}
	names, mine := make(map[int]string, len(ds)), map[string]bool{}
	for _, d := range ds {
		if names[d.Index] = d.Name; d.Alias == kernel.Alias {
			mine[d.Name] = true
		}
	}
	there, err := c.k.MainRoutes(names)
	if err != nil {
		return c.shadow.notes // whoever reconciles says so
	}
	return shadowed(there, c.inPlace.Routes, mine, c.cfg.Network.Networks(), c.set)
}
