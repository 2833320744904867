package daemon

import (
	"net/netip"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing/probe"
)

// newProber makes what asks the peers of g whether they answer, unless the flag or the network configuration
// says no.
func (d *Daemon) newProber(g *overlay) {
	if !d.cfg.Probe || !g.network.config.Probing() {
		return
	}
	c := probe.Config{
		Do: g.kernel.Do,
		Changed: func() {
			select {
			case g.wake <- struct{}{}: // the record names the port
			default:
			}
		},
		Logger: d.log.With("component", "probe"),
	}
	if g.plane != nil {
		c.Rejected = g.rejections
	}
	g.prober = probe.New(c)
}

// rejections is what ICMP said of datagrams to peers, by their addresses on the underlay.
func (g *overlay) rejections() map[netip.Addr]probe.Rejection {
	var out map[netip.Addr]probe.Rejection
	peers := g.plane.Engine().Peers()
	for i := range peers {
		if u := peers[i].Unreachable; u.Count > 0 {
			if out == nil {
				out = map[netip.Addr]probe.Rejection{}
			}
			out[peers[i].Addr] = probe.Rejection{At: u.Last, By: u.By, Says: u.Why.String()}
		}
	}
	return out
}

const (
	// probeEvery is the time between two looks at what may have changed beside the set: devices, and how peers
	// are reached.
	probeEvery = 10 * time.Second
	// probeMany is the number of peers from which on looks are rarer, since each is at all of them: a changed
	// set waits a second for so many, and probeEvery is as much longer.
	probeMany = 1000
)

// probe tells the prober what there is now, if the set has changed since, or from time to time. A call may
// come from any goroutine.
func (g *overlay) probe(changed bool) {
	if g == nil || g.prober == nil {
		return
	}
	g.asking.Lock() // the set that is read last is told last
	defer g.asking.Unlock()
	set, _ := g.state()
	many, since := time.Duration(len(set.Peers)/probeMany), time.Since(g.probed)
	g.changed = g.changed || changed
	if set.Own.Subnets == (lease.Subnets{}) || since < (1+many)*probeEvery &&
		(!g.changed || since < many*time.Second) {
		return
	}
	g.probed, g.changed = time.Now(), false
	here, ways := g.network.config.Probes(set, g.backend.Status())
	g.prober.Update(here, ways)
}

// probePort is where this node answers, for its record; 0 if it does not.
func (g *overlay) probePort() int {
	if g.prober == nil {
		return 0
	}
	return int(g.prober.Port())
}

// alone says that no peer answers, in words that stay the same; "" if one does, or may.
func alone(s *control.Snapshot) string {
	if !s.Alone {
		return ""
	}
	return "none of this node's peers answers through the overlay: weft doctor on this node says what is not " +
		"excluded"
}
