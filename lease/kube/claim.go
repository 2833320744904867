package kube

import (
	"fmt"
	"slices"

	"weft/lease"
)

// A Node has a claim to its podCIDRs if it was accepted once, and its object still has them. They are its
// spec, which an administrator or the controller manager wrote; what its annotations have become takes
// nothing from it.

// claims returns the Nodes that still have what they had when they were accepted, each list by subnets. A
// Node that was deleted has none, nor has another by its name.
func (v view) claims(accepted, once []lease.Record) []*node {
	out := make([]*node, 0, len(accepted)+len(once))
	for _, list := range [][]lease.Record{accepted, once} {
		for _, r := range list {
			if r.Kube == nil {
				continue
			}
			if n := v.find(r.Kube.Name); n != nil && *n.Kube == *r.Kube && n.Subnets == r.Subnets {
				out = append(out, n)
			}
		}
	}
	if len(once) > 0 {
		slices.SortFunc(out, func(a, b *node) int { return a.Compare(b.Subnets) })
	}
	return out
}

// has reports whether r's is one of the claims, which are sorted by subnets.
func has(claims []*node, r *lease.Record) bool {
	bySubnets := func(c *node, s lease.Subnets) int { return c.Compare(s) }
	i, ok := slices.BinarySearchFunc(claims, r.Subnets, bySubnets)
	return ok && r.Kube != nil && *claims[i].Kube == *r.Kube
}

// claimant returns the record that the newcomer r would take something from; nil for none. A
// Node that has left keeps out only those that were refused while it was there: that its mark is gone
// gives them nothing. A Node that comes later may have what it left, since an administrator made it.
func claimant(claims []*node, r *lease.Record, refused func(name string) bool) *lease.Record {
	for _, c := range claims {
		if c.Overlaps(r.Subnets) && (c.managed || refused(r.Kube.Name)) {
			return &c.Record
		}
	}
	return nil
}

// single sorts newcomers out whose subnets overlap another's claim, and of those that have the same subnets
// all but the first by name. claims are sorted by subnets. own are ours, which nobody else may have.
func single(records []*lease.Record, own lease.Subnets, claims []*node,
	refused func(name string) bool,
) (kept []*lease.Record, twice []lease.Rejected) {
	newcomers := make(map[lease.Subnets]*lease.Record)
	kept = make([]*lease.Record, 0, len(records))
	for _, r := range records {
		if has(claims, r) {
			kept = append(kept, r)
			continue
		}
		owner := newcomers[r.Subnets]
		if owner == nil {
			owner = claimant(claims, r, refused)
		}
		if owner == nil {
			newcomers[r.Subnets] = r
			kept = append(kept, r)
			continue
		}
		no := lease.Rejected{
			Key: r.Kube.Name, Reason: lease.RejectOverlapsPeer,
			Detail: fmt.Sprintf("%s overlaps %s, which is that of node %q", r.Subnets, owner.Subnets, owner.Kube.Name),
		}
		if r.Overlaps(own) {
			no.Reason, no.Detail = lease.RejectOverlapsOwn, fmt.Sprintf("%s is ours", own)
		}
		twice = append(twice, no)
	}
	return kept, twice
}

// refused reports whether the last set refused the Node because its subnets are another's.
func (c *Life) refused(name string) bool {
	return slices.ContainsFunc(c.Peers.Last().Rejected, func(r lease.Rejected) bool {
		return r.Key == name && r.Reason == lease.RejectOverlapsPeer
	})
}

// claiming returns those of records that are still a claim.
func claiming(claims []*node, records []lease.Record) []lease.Record {
	return slices.DeleteFunc(records, func(r lease.Record) bool { return !has(claims, &r) })
}

// unpublished returns the records that were accepted and are not in set any more, unless set gives
// something of theirs to another.
func unpublished(set lease.Set, before, once []lease.Record) (out []lease.Record) {
	for _, list := range [][]lease.Record{before, once} {
		for _, r := range list {
			_, ok := slices.BinarySearchFunc(set.Peers, r.Subnets, func(p lease.Record, s lease.Subnets) int {
				return p.Compare(s)
			})
			taken := func(p lease.Record) bool { return p.Overlaps(r.Subnets) }
			if ok || r.Kube == nil || r.Overlaps(set.Own.Subnets) || slices.ContainsFunc(set.Peers, taken) {
				continue
			}
			out = append(out, r)
		}
	}
	return out
}

// incumbent returns the Node that has one of own, our podCIDRs, and had it before us; nil for none. All nodes
// then send there, so we neither serve nor announce it. It was ours first if we hold it, or if our Node says
// already how it is reached. A Node that takes no part keeps us out only if it did when we came. One that
// merely overlaps ours does not: it may have all of the network.
func (c *Life) incumbent(own lease.Subnets) *node {
	before := c.waitsFor
	c.waitsFor = ""
	if c.held.Subnets == own || c.keys.isManaged(c.ours.Annotations) {
		return nil
	}
	for _, n := range c.view.nodes {
		same := own.V4.IsValid() && n.V4 == own.V4 || own.V6.IsValid() && n.V6 == own.V6
		if same && n.Kube.Name != c.name && (n.managed || n.Kube.Name == before) {
			c.waitsFor = n.Kube.Name
			return n
		}
	}
	return nil
}

// duplicateError says which Node had our podCIDRs before us.
type duplicateError struct {
	node      string
	own       lease.Subnets
	incumbent string
	theirs    lease.Subnets
}

func (e *duplicateError) Error() string {
	return fmt.Sprintf("podCIDR %s of node %q is that of node %q too, which has %s and was there first: "+
		"delete one of the two Node objects and let that node register again",
		e.own, e.node, e.incumbent, e.theirs)
}
