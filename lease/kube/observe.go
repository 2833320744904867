package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
)

// observe takes in what the API server has.
func (c *Life) observe(v view) {
	c.view = v
	all, bad := v.records(c.name)
	claims := v.claims(c.Peers.Accepted(), c.once)
	records, twice := single(all, c.held.Subnets, claims, c.refused)
	c.once = claiming(claims, c.once)
	c.Believe(lease.Snapshot{
		ClusterID: c.cluster(all), Revision: v.revision, Config: c.o.RawConfig, Records: records, Bad: bad,
	}, c.o.RawConfig, twice...)
	if c.ours != nil {
		c.ownUID = string(c.ours.UID)
	}
}

// cluster names the cluster: by the UID that our Node had when we first knew it. A UID is never
// given twice, so it is the same cluster as long as any Node still has the one that it had; our
// own may be deleted and made anew. An API server that was wiped or replaced has no such Node.
func (c *Life) cluster(records []*lease.Record) string {
	mem := c.Peers.Memory()
	own := "none"
	if c.ours != nil {
		own = string(c.ours.UID)
	}
	if mem.ClusterID == "" {
		return own
	}
	if own == c.ownUID {
		return mem.ClusterID
	}
	known := make(map[lease.KubeNode]bool, len(mem.Peers))
	for _, p := range mem.Peers {
		if p.Kube != nil {
			known[*p.Kube] = true
		}
	}
	if slices.ContainsFunc(records, func(r *lease.Record) bool { return known[*r.Kube] }) {
		return mem.ClusterID
	}
	return own
}

// judge draws the consequences for our own record.
func (c *Life) judge() {
	if c.ours == nil {
		c.namesake.contest, c.writer.own = false, lease.Subnets{}
		c.without(nil, &noNodeError{name: c.name})
		return
	}
	own, notes, err := ownSubnets(c.o.Config, c.ours.Name, cidrsOf(c.ours))
	v4, v6, faults := c.keys.overwrites(c.ours.Annotations)
	notes = append(notes, faults...)
	c.overwrite = [2]netip.Addr{v4, v6}
	other := c.otherMachine()
	if c.writer.mayWrite = other == nil; other != nil {
		if c.writer.own = (lease.Subnets{}); err != nil {
			other = c.surrender(other)
		}
		c.enter(lease.Waiting, notes, other)
		return
	}
	if err == nil {
		if n := c.incumbent(own); n != nil {
			err = &duplicateError{node: c.name, own: own, incumbent: n.Kube.Name, theirs: n.Subnets}
			own = lease.Subnets{}
		}
	}
	c.writer.own = own
	if err != nil {
		c.without(notes, err)
		return
	}
	if before := c.held.Subnets; before != own && before != (lease.Subnets{}) {
		c.Log(slog.LevelWarn, "the podCIDR of our Node is another: pods that have an address of the former one "+
			"are cut off",
			"event", lease.EventSubnetChanged, "before", before.String(), "now", own.String())
	}
	c.tenure = given
	c.held = lease.Record{Subnets: own, Attrs: c.announced().Attrs,
		Kube: &lease.KubeNode{Name: c.ours.Name, UID: string(c.ours.UID)}}
	c.confirm(notes)
}

var errNotWritten = errors.New("our annotations are not written yet")

// confirm is judge with a podCIDR: the state is what our annotations are.
func (c *Life) confirm(notes []string) {
	w := &c.writer
	want, err := c.keys.encode(c.held.Attrs, c.o.Backend)
	var p patch
	p.annotations(c.keys, c.ours.Annotations, want)
	right := p.empty() && err == nil
	if n := &c.namesake; right && (n.right.IsZero() || n.uid != c.ours.UID) {
		n.right, n.uid = c.Now, c.ours.UID
	}
	if right {
		c.namesake.said = c.held.Attrs
	}
	if err == nil {
		err = w.err
	}
	w.right = w.right || right
	state := lease.Held
	switch {
	case right || w.right && !w.refused:
		err = nil // in order, or being written, or to be once the API server answers
	case w.right:
		state = lease.Expired
	case c.began == keeper.SourceCache:
		state = lease.Unconfirmed
	default:
		state = lease.Acquiring
	}
	if state != lease.Held && err == nil {
		err = errNotWritten
	}
	c.enter(state, notes, err)
}

// without is judge where our Node gives us nothing. We keep what we had until another Node has it.
func (c *Life) without(notes []string, why error) {
	state := lease.Acquiring
	if c.held.Subnets != (lease.Subnets{}) {
		state, why = lease.Expired, c.surrender(why)
		if c.tenure == lost {
			state = lease.Lost
		}
	} else if c.tenure == lost {
		state = lease.Lost
	}
	c.enter(state, notes, why)
}

// surrender gives up what our Node does not give us any more, if another Node has it. It returns why, with
// who has it if somebody has.
func (c *Life) surrender(why error) error {
	had := c.held.Subnets
	if had == (lease.Subnets{}) {
		return why
	}
	n := c.view.claimed(had, c.name)
	if n == nil {
		return why
	}
	c.held, c.tenure = lease.Record{}, lost
	return fmt.Errorf("%w; %w", &lease.TakenError{Subnets: had, By: n.Kube.Name, Their: n.Subnets}, why)
}

// publish computes the Set and hands it out if it is not the last one.
func (c *Life) publish() {
	local := c.announced()
	a := local.Attrs
	before, first := c.Peers.Accepted(), !c.Peers.Handed()
	set, news := c.Publish(belief.Rules{
		Config: c.o.Config, Own: c.held.Subnets, AnyLength: true,
		Self:     lease.Self{Node: c.o.Node, PublicIP: a.PublicIP, PublicIPv6: a.PublicIPv6},
		Underlay: local.Underlay, Store: local.Store,
	}, c.held)
	if news && !first {
		c.once = unpublished(set, before, c.once)
	}
}
