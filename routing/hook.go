package routing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft/lease"
	"weft/routing/routehook"
)

// typeHook has a controller of the operator's program the routes between nodes somewhere else: in switches, a
// router, a cloud's route table. Of such a network the hosts need no routes to each other's subnets: what
// they send leaves by their ordinary routes.
const typeHook = "route-hook"

func hookType() Type {
	return Type{
		Name: typeHook, Settings: func(lease.NetworkConfig, func(string) bool) settings { return new(hook) },
		Help: map[string]string{"Interval": "seconds until the controller gets the same routes again, from 30 to " +
			"3600"},
	}
}

// hook wants nothing of the kernel. Where the controller is, and with what it is asked, each host is told by
// BackendConfig.Hook: whoever writes the network config must not choose who is given a host's token.
type hook struct {
	Interval uint32 `default:"60" range:"30..3600"` // seconds between two views that say the same
	plain
}

// Facts implements settings.
func (*hook) Facts() Facts {
	return Facts{Carrier: CarrierOthers, Direct: true, Controller: true, record: typeHook, path: PathHook,
		last: true}
}

func (*hook) want(s situation) desired {
	d := desired{device: s.under.Name, ways: s.ways(typeHook)}
	for w := range d.used() {
		if w.direct() {
			w.How = HowController
		}
	}
	return d
}

// hookRoutes are the routes of a set: this node's own and those of the peers that want did not leave out, in
// the order of their subnets.
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
	d := new(hook).want(s)
	for w := range d.used() {
		out = append(out, routehook.Route{Subnet: w.Subnet, NextHop: w.Via, Node: w.Node, Name: w.Peer})
	}
	slices.SortFunc(out, func(a, b routehook.Route) int { return a.Subnet.Compare(b.Subnet) })
	return out
}

// hookAgain is how long the same view counts before it is given again. A large one is given less often: n
// nodes each give n routes.
func hookAgain(interval uint32, routes int) time.Duration {
	const perRoute = 50 * time.Millisecond
	return max(time.Duration(interval)*time.Second, time.Duration(routes)*perRoute)
}

// Wait after a view that was not taken, and after one of which a route is pending: the first, and the longest
// unless the controller asks for more.
const (
	hookRetryFirst = time.Second
	hookRetryLast  = time.Minute
)

// hookPending is how long it takes at first until a view with a pending route is given again. A new node's
// route is in the view of each, so that large ones take longer.
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

// HookFile, in the state directory, has what the controller accepted of this node's own routes.
const HookFile = "route-hook.json"

// ErrNoController says that a network config of type route-hook is not followed, since this host was not told
// where the controller is.
var ErrNoController = errors.New(
	"type route-hook: no controller is named on this host: give --route-hook-url")

// hookRunner gives the controller the views.
type hookRunner struct {
	idle
	client   *routehook.Client
	node     string
	networks []netip.Prefix
	interval uint32
	log      *slog.Logger
	file     stateFile
	now      func() time.Time

	// These are guarded by the node's lock.
	instance string
	given    []routehook.Route // by the latest view, whether it was taken or not
	number   uint64            // its generation
	verdicts map[netip.Prefix]routehook.Verdict
	due      time.Time // when the same is to be given again
	retry    time.Duration
	pending  time.Duration // the wait since the latest view, if a route of it was pending; else 0
	fault    error         // of the latest try
	// own subnets that the controller has accepted at some time, with provenAt as next hops
	proven   []netip.Prefix
	provenAt []netip.Addr

	statusMu sync.Mutex // a leaf lock
	status   HookStatus
}

// open implements opener.
func (s *hook) open(_ context.Context, c BackendConfig) (settings, driver, error) {
	if c.Hook == nil || c.Hook.URL == "" {
		return nil, nil, ErrNoController
	}
	client, err := routehook.NewClient(*c.Hook, c.Node)
	if err != nil {
		return nil, nil, err
	}
	r := &hookRunner{
		client: client, node: c.Node, networks: c.Network.Networks(), interval: s.Interval, log: c.Logger,
		now:      time.Now,
		instance: rand.Text(), status: HookStatus{Controller: client.At()}, file: c.stateFile(HookFile),
	}
	if err := r.load(); err != nil {
		c.Logger.Warn("what the controller accepted earlier is not known: pods wait until it accepts this node's "+
			"routes", "reason", err)
	}
	return s, r, nil
}

// sync implements driver: it gives the controller a view if there is another one, or if the same is due.
func (r *hookRunner) sync(ctx context.Context, s situation, _ *desired) outcome {
	routes := hookRoutes(r.node, s)
	if !slices.ContainsFunc(routes, func(x routehook.Route) bool { return x.Own }) {
		return outcome{node: fmt.Errorf("%w: this node has no address that peers are told, of the family of its "+
			"subnet", errNotStarted)}
	}
	if changed := !slices.Equal(routes, r.given); changed {
		r.given, r.number, r.pending = routes, r.number+1, 0
		if r.retry == 0 { // else the controller gets the rest that it needs
			r.due = time.Time{}
		}
	}
	if now := r.now(); !now.Before(r.due) {
		r.give(ctx, s.set.Own.Name())
	}
	return r.outcome(s)
}

// next implements driver.
func (r *hookRunner) next() time.Time { return r.due }

// give is one try.
func (r *hookRunner) give(ctx context.Context, name string) {
	again := hookAgain(r.interval, len(r.given))
	answer, err := r.client.Put(ctx, routehook.View{
		SchemaVersion: routehook.Schema, Node: r.node, Name: name, Instance: r.instance,
		Generation: r.number,
		Lifetime:   int64(min(hookLives*again, routehook.MaxLifetime) / time.Second), Networks: r.networks,
		Routes: r.given,
	})
	if err != nil && ctx.Err() != nil {
		return // we were interrupted, which says nothing about the controller
	}
	now := r.now()
	if err != nil {
		r.retry = min(max(2*r.retry, hookRetryFirst), hookRetryLast)
		wait := r.retry
		if e := (*routehook.Error)(nil); errors.As(err, &e) {
			wait = max(wait, e.After)
		}
		r.fault, r.due = err, now.Add(spread(wait))
	} else {
		r.fault, r.retry, r.verdicts = nil, 0, answer.Verdicts()
		r.due = now.Add(spread(again))
		if !r.undecided() {
			r.pending = 0
		} else { // somebody waits for it
			r.pending = min(max(2*r.pending, hookPending(len(r.given))), hookRetryLast)
			r.due = now.Add(min(spread(r.pending), spread(again)))
		}
		r.prove()
	}
	r.note(now)
}

// undecided reports whether a route is pending.
func (r *hookRunner) undecided() bool {
	return slices.ContainsFunc(r.given, func(x routehook.Route) bool {
		return r.verdict(x.Subnet).State == routehook.Pending
	})
}

// verdict is the controller's about a subnet; one that it said nothing of is pending.
func (r *hookRunner) verdict(subnet netip.Prefix) routehook.Verdict {
	v, ok := r.verdicts[subnet]
	if !ok {
		return routehook.Verdict{Subnet: subnet, State: routehook.Pending,
			Reason: "the controller has not said what became of it"}
	}
	return v
}

// spread returns a time in the tenth around d, so that nodes that began together do not stay together.
func spread(d time.Duration) time.Duration {
	return d - d/20 + time.Duration(mathrand.Int64N(int64(d/10)+1))
}

// outcome is what the latest answer, or its absence, means for the node and its peers.
func (r *hookRunner) outcome(s situation) outcome {
	var out outcome
	var faults []error
	switch {
	case !r.ownInPlace():
		faults = append(faults, errNotStarted, r.fault)
	case r.fault != nil: // what was accepted stays where it is: packets go on, and the node is ready
		out.peers = append(out.peers, peerFault{err: r.fault})
	}
	bySubnet := map[netip.Prefix]lease.Subnets{}
	for _, p := range s.set.Peers {
		bySubnet[p.V4], bySubnet[p.V6] = p.Subnets, p.Subnets
	}
	for _, x := range r.given {
		v := r.verdict(x.Subnet)
		if v.State == routehook.Accepted || r.verdicts == nil {
			// before the first answer nothing is known: packets may well pass, by what an earlier process asked for
			continue
		}
		what := "the controller refuses it"
		if v.State == routehook.Pending {
			what = "the controller has it not in place yet"
		}
		if v.Reason != "" {
			what += ": " + v.Reason
		}
		if x.Own {
			err := fmt.Errorf("the route to this node's %v: %s", x.Subnet, what)
			if v.State == routehook.Pending && r.ownInPlace() {
				// a controller that began anew has not looked yet, or cannot
				out.peers = append(out.peers, peerFault{err: err})
			} else {
				faults = append(faults, err)
			}
			continue
		}
		out.peers = append(out.peers, peerFault{bySubnet[x.Subnet], x.Subnet, errors.New(what)})
	}
	out.node = errors.Join(faults...)
	return out
}

// ownInPlace reports whether the controller has accepted each own route at some time: if it is away now, it
// has forgotten none.
func (r *hookRunner) ownInPlace() bool {
	subnets, hops := ownRoutes(r.given)
	return slices.Equal(subnets, r.proven) && slices.Equal(hops, r.provenAt)
}

func ownRoutes(routes []routehook.Route) (subnets []netip.Prefix, hops []netip.Addr) {
	for _, x := range routes {
		if x.Own {
			subnets, hops = append(subnets, x.Subnet), append(hops, x.NextHop)
		}
	}
	return subnets, hops
}

// prove notes that the own routes are in place, or are no more: the controller may have changed its mind.
// That one is pending says neither: it may be that the controller began anew and cannot look at what packets
// go by.
func (r *hookRunner) prove() {
	subnets, hops := ownRoutes(r.given)
	if was := r.ownInPlace(); slices.ContainsFunc(subnets, func(p netip.Prefix) bool {
		state := r.verdict(p).State
		return state != routehook.Accepted && !(state == routehook.Pending && was)
	}) {
		subnets, hops = nil, nil
	}
	if !slices.Equal(subnets, r.proven) || !slices.Equal(hops, r.provenAt) {
		r.proven, r.provenAt = subnets, hops
		if err := r.save(); err != nil {
			r.log.Warn("the next start waits for the controller", "reason", err)
		}
	}
}

// note makes the status of the latest try.
func (r *hookRunner) note(now time.Time) {
	r.statusMu.Lock()
	defer r.statusMu.Unlock()
	st := &r.status
	if r.fault != nil {
		if st.Failures++; st.Fault == "" {
			st.Since = now
		}
		st.Fault = r.fault.Error()
		return
	}
	st.Taken, st.Fault, st.Since = now, "", time.Time{}
	st.Accepted, st.Pending, st.Refused = 0, 0, 0
	for _, x := range r.given {
		switch r.verdict(x.Subnet).State {
		case routehook.Accepted:
			st.Accepted++
		case routehook.Pending:
			st.Pending++
		case routehook.Refused:
			st.Refused++
		}
	}
}

// tell implements driver.
func (r *hookRunner) tell(st *Status) {
	r.statusMu.Lock()
	defer r.statusMu.Unlock()
	st.Hook = r.status
}

// hookState is the state file.
type hookState struct {
	Controller string
	Subnets    []netip.Prefix
	NextHops   []netip.Addr
}

func (r *hookRunner) load() error {
	var s hookState
	err := r.file.load(&s)
	if s.Controller == r.client.At() {
		r.proven, r.provenAt = s.Subnets, s.NextHops
	}
	return err
}

func (r *hookRunner) save() error { return r.file.save(hookState{r.client.At(), r.proven, r.provenAt}) }
