package kube

import (
	"cmp"
	"slices"
	"time"

	"weft/lease"
)

// view is all Nodes at one moment. It is immutable.
type view struct {
	read     bool // they were read: in the zero view nothing is known of any
	revision int64
	nodes    []*node // by name
}

// find returns the Node of a name, or nil.
func (v view) find(name string) *node {
	byName := func(n *node, name string) int { return cmp.Compare(n.Kube.Name, name) }
	i, ok := slices.BinarySearchFunc(v.nodes, name, byName)
	if !ok {
		return nil
	}
	return v.nodes[i]
}

// records returns those of the Nodes that take part, but for own, and those that do not parse; both by name.
func (v view) records(own string) (records []*lease.Record, bad []lease.Rejected) {
	records = make([]*lease.Record, 0, len(v.nodes))
	for _, n := range v.nodes {
		switch {
		case n.Kube.Name == own:
		case n.bad != nil:
			bad = append(bad, *n.bad)
		case n.managed:
			records = append(records, &n.Record)
		}
	}
	return records, bad
}

// claimed returns the first Node other than own with a podCIDR that overlaps want, whether or not it
// takes part; nil for none.
func (v view) claimed(want lease.Subnets, own string) *node {
	for _, n := range v.nodes {
		if n.Kube.Name != own && n.Overlaps(want) {
			return n
		}
	}
	return nil
}

// A burst of changes becomes one set once it is quiet for settleQuiet, or every settleMost while it lasts.
const (
	settleQuiet = 50 * time.Millisecond
	settleMost  = time.Second
)

// changes are those of Nodes that came since all were read. The zero value is none.
type changes struct {
	first, last time.Time
	urgent      bool // they are not to wait
}

func (c *changes) add(urgent bool, now time.Time) {
	c.last = now
	if c.first.IsZero() {
		c.first = now
	}
	c.urgent = c.urgent || urgent
}

// due is when everything is to be read; the zero time for no need.
func (c *changes) due() time.Time {
	switch {
	case c.first.IsZero():
		return time.Time{}
	case c.urgent:
		return c.first
	}
	at := c.last.Add(settleQuiet)
	if most := c.first.Add(settleMost); most.Before(at) {
		at = most
	}
	return at
}
