package doctor

import (
	"weft/lease"
	"weft/routing"
)

// skipped says why weftd makes no route to the subnet of a peer; "" if it makes one, or has not said.
func (f *Facts) skipped(r lease.Record) string {
	for _, p := range f.Daemon.Peers.Peers {
		for _, y := range p.Reached {
			if y.How == routing.HowSkipped.String() && y.Subnet.Contains(inside(r)) {
				return y.Reason
			}
		}
	}
	return ""
}

// used is how weftd gets to use a peer, one of those names, that it skips. One that did not take up a new
// Type is the one to restart.
func (f *Facts) used(r lease.Record, names string) string {
	switch c := f.Daemon.Status.Config; {
	case f.usable(r):
		return "weft peers has the reasons; weft lease list " + r.Called()
	case c.Differs || c.LastGood || len(c.Changes) > 0:
		return "systemctl restart weftd, since this node does not run what " + f.configPlace() + " has"
	}
	return "on " + names + ": systemctl restart weftd, if " + f.configPlace() + " is for that network, too"
}
