package daemon

import (
	"fmt"
	"strings"
	"time"

	"weft/lease"
)

// rangeWarning is the part of the subnets, in percent, from which on the operator is told that they come to an end.
const rangeWarning = 80

// rangeEvery is the time between looks at it, since they cost work for each record.
const rangeEvery = 10 * time.Second

// rangeNote says that most or all subnets of the network are taken; "" if enough are left. It is pure.
func rangeNote(set lease.Set) string {
	taken := make([]lease.Subnets, 0, len(set.Peers)+1)
	if set.Own.Subnets != (lease.Subnets{}) {
		taken = append(taken, set.Own.Subnets)
	}
	for i := range set.Peers {
		taken = append(taken, set.Peers[i].Subnets)
	}
	var out []string
	for _, u := range set.Config.Use(taken) {
		if u.Percent() >= rangeWarning {
			out = append(out, fmt.Sprintf("%d of %d subnets of %s are taken", u.Taken, u.All, u.Network))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, ", ") + ": a node that joins when none is left waits; weft lease list shows who has them, weft lease release gives one back that nobody needs; a wider Network takes a restart of every node"
}

// rangeNow calls rangeNote for the present generation; where the cluster gives out subnets, that is its matter.
func (d *Daemon) rangeNow() string {
	g, _ := d.current()
	if g == nil || !d.source.allocates() {
		return ""
	}
	set, _ := g.state()
	if len(set.Config.Networks()) == 0 {
		return ""
	}
	return rangeNote(set)
}

// rangeTold is when the range was last looked at, and whether it was near its end.
type rangeTold struct {
	at   time.Time
	near bool
}

// tell logs when the range comes near its end, and when there is room again.
func (r *rangeTold) tell(d *Daemon) {
	if time.Since(r.at) < rangeEvery {
		return
	}
	r.at = time.Now()
	why := d.rangeNow()
	switch near := why != ""; {
	case near && !r.near:
		d.log.Warn("the network is nearly full", "note", why)
	case r.near && !near:
		d.log.Info("there is room for nodes in the network again")
	}
	r.near = why != ""
}
