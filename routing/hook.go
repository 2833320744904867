package routing

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"weft/lease"
	"weft/routing/routehook"
)

// typeHook has a controller of the operator's program the routes between nodes somewhere else: in switches, a router, a cloud's route table. Of
// such a network the hosts need no routes to each other's subnets: what they send leaves by their ordinary routes.
const typeHook = "route-hook"

func hookType() Type {
	return Type{Name: typeHook, Settings: func(lease.NetworkConfig, func(string) bool) settings { return new(hook) }}
}

// hook wants nothing of the kernel. Where the controller is, and with what it is asked, each host is told by
// BackendConfig.Hook: whoever writes the network config must not choose who is given a host's token.
type hook struct {
	Interval uint32 `default:"60" range:"30..3600"` // seconds between two views that say the same
	plain
}

// Facts implements settings.
func (*hook) Facts() Facts { return Facts{Carrier: CarrierOthers, Direct: true, Controller: true} }

func (*hook) trait() trait {
	return trait{name: typeHook, record: typeHook, path: PathHook, last: true}
}

func (*hook) publish() (data, v6data json.RawMessage) { return nil, nil }

func (*hook) want(s situation) desired {
	d := desired{device: s.under.Name}
	for _, r := range s.set.Peers {
		for _, f := range families(r, s.set, s.under) {
			report := f.reached(r)
			switch {
			case !strings.EqualFold(r.BackendType, typeHook):
				report = report.skip("its backend is %s, this network's is %s", backendName(r.BackendType), typeHook)
			case !f.public.IsValid() || !f.local.IsValid():
				report = report.skip("it has no %s, or this node has none", f.publicKey)
			default:
				report.How = HowController
			}
			d.reached = append(d.reached, report)
		}
	}
	return d
}

// hookRoutes are the routes of a set: this node's own and those of the peers that want did not leave out, in the order of their subnets.
func hookRoutes(node string, s situation) []routehook.Route {
	own := s.set.Own
	out := make([]routehook.Route, 0, 2*len(s.set.Peers)+2)
	for _, r := range [...]routehook.Route{
		{Subnet: own.V4, NextHop: s.under.Ext4, Node: node, Name: own.Name(), Own: true},
		{Subnet: own.V6, NextHop: s.under.Ext6, Node: node, Name: own.Name(), Own: true},
	} {
		if r.Subnet.IsValid() && r.NextHop.IsValid() {
			out = append(out, r)
		}
	}
	for _, r := range new(hook).want(s).reached {
		if r.How == HowController {
			out = append(out, routehook.Route{Subnet: r.Subnet, NextHop: r.Via, Node: r.Node, Name: r.Peer})
		}
	}
	slices.SortFunc(out, func(a, b routehook.Route) int {
		if c := a.Subnet.Addr().Compare(b.Subnet.Addr()); c != 0 {
			return c
		}
		return a.Subnet.Bits() - b.Subnet.Bits()
	})
	return out
}

// hookAgain is how long the same view counts before it is given again. A large one is given less often: n nodes each give n routes.
func hookAgain(interval uint32, routes int) time.Duration {
	const perRoute = 50 * time.Millisecond
	return max(time.Duration(interval)*time.Second, time.Duration(routes)*perRoute)
}

// Wait after a view that was not taken, and after one of which a route is pending: the first, and the longest unless the controller asks for more.
const (
	hookRetryFirst = time.Second
	hookRetryLast  = time.Minute
)

// hookPending is how long it takes at first until a view with a pending route is given again. A new node's route is in the view of each, so that large ones
// take longer.
func hookPending(routes int) time.Duration {
	const perRoute = 5 * time.Millisecond
	return max(hookRetryFirst, time.Duration(routes)*perRoute)
}

// hookLives is how many times in a row a node may fail to give its view before the view counts no more.
const hookLives = 15

// HookStatus is what a controller made of what it was given.
type HookStatus struct {
	// Controller is the URL of this node's view.
	Controller string `json:"url"`
	// Taken is when the controller last took a view; zero if it has not since the start.
	Taken time.Time `json:"taken,omitzero"`
	// Accepted, Pending and Refused count the routes of that view.
	Accepted int `json:"accepted"`
	Pending  int `json:"pending"`
	Refused  int `json:"refused"`
	// Fault says why it did not take the latest one; "" if it did. Since is when that began.
	Fault string    `json:"fault,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Failures counts views that were not taken, since the start.
	Failures uint64 `json:"failures"`
}
