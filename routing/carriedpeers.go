package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/tunnel"
)

// carriedPeers is what a set comes to.
type carriedPeers struct {
	spec tunnel.Spec
	// reached is about every subnet of every record, but for those in use of a type that has one way only, and
	// routes are the plain routes that some of them take.
	reached []Reached
	routes  []Route
	// notes are about records that are used, but not wholly.
	notes []Skipped
	// tenure is who has which outer address from now on.
	tenure tenure

	// of says for each of spec.Peers whose it is.
	of []carriedOf
}

// carriedOf ties a peer of the data plane to the record that it comes from.
type carriedOf struct {
	record *lease.Record // of the set
	// reached[first:end] is what is reported about it; nothing where there is one way only.
	first, end int
}

// room makes room for so many peers at once: of thousands, growing would leave several times that behind as
// garbage, at each change of one of them.
func (c *carriedPeers) room(peers int) {
	c.spec.Peers, c.of = make([]tunnel.PeerSpec, 0, peers), make([]carriedOf, 0, peers)
}

// skip reports that a record is not used, with the reason, for each of its subnets.
func (c *carriedPeers) skip(r *lease.Record, p tunnel.PeerSpec, why string) {
	for _, n := range p.Subnets {
		report := Reached{Peer: p.Name, Subnets: r.Subnets, Subnet: n, How: HowTunnel, Via: p.Addr}
		c.reached = append(c.reached, report.skip("%s", why))
	}
}

// add appends a peer; what is reported about it is what stands from first on. r is the set's.
func (c *carriedPeers) add(r *lease.Record, p tunnel.PeerSpec, first int) {
	c.spec.Peers, c.of = append(c.spec.Peers, p), append(c.of, carriedOf{r, first, len(c.reached)})
}

// settle leaves out the peers whose address another one has, or the overlay cuts off. The Sources of those
// that stay are sorted, without those of others, and do not repeat Addr.
func (c *carriedPeers) settle(before tenure, displaced []Displaced) {
	bidders := make([]bidder, len(c.spec.Peers))
	for i := range c.spec.Peers {
		p := &c.spec.Peers[i]
		b := bidder{subnets: c.of[i].record.Subnets, created: c.of[i].record.Created, first: claim{addr: p.Addr}}
		p.Sources = slices.DeleteFunc(unique(p.Sources), func(a netip.Addr) bool { return a == p.Addr })
		if len(p.Sources) == 0 {
			p.Sources = nil // an empty one would keep its memory
		}
		for _, a := range p.Sources {
			b.further = append(b.further, claim{addr: a})
		}
		bidders[i] = b
	}
	grants, after := settle(bidders, before)
	c.tenure = after
	why := make([]string, len(grants))
	for i, g := range grants {
		p := &c.spec.Peers[i]
		if g.by != i {
			why[i] = fmt.Sprintf("its address %v is %s's too, which had it first: give the nodes addresses of their own, or delete the record that is wrong", p.Addr, c.spec.Peers[g.by].Name)
		}
		for _, l := range slices.Backward(g.lost) {
			c.notes = append(c.notes, Skipped{Peer: p.Name, Subnets: c.of[i].record.Subnets,
				Reason: fmt.Sprintf("its further address %v is %s's", p.Sources[l[0]], c.spec.Peers[l[1]].Name)})
			p.Sources = slices.Delete(p.Sources, l[0], l[0]+1)
		}
	}
	by := make(map[netip.Addr]Displaced, len(displaced))
	for _, d := range displaced {
		by[d.Addr] = d
	}
	for i, p := range c.spec.Peers {
		if d, out := by[p.Addr]; out && why[i] == "" {
			why[i] = d.Reason("its address")
		}
	}
	c.leaveOut(why)
}

// leaveOut drops the peers for which why, of the same length as spec.Peers, is not "".
func (c *carriedPeers) leaveOut(why []string) {
	n := 0
	for i, reason := range why {
		if reason == "" {
			c.spec.Peers[n], c.of[n] = c.spec.Peers[i], c.of[i]
			n++
			continue
		}
		if c.of[i].first == c.of[i].end {
			c.skip(c.of[i].record, c.spec.Peers[i], reason)
		}
		for j := c.of[i].first; j < c.of[i].end; j++ {
			r := c.reached[j]
			c.routes = slices.DeleteFunc(c.routes, func(d Route) bool { return d.Dst == r.Subnet.Masked() })
			c.reached[j] = r.skip("%s", reason)
		}
	}
	clear(c.spec.Peers[n:])
	c.spec.Peers, c.of = c.spec.Peers[:n], c.of[:n]
}

// unsound enters which peers the data plane has not taken, and returns what is wrong besides.
func (c *carriedPeers) unsound(err error) error {
	why := make([]string, len(c.spec.Peers))
	var rest []error
	for _, e := range split(err) {
		var p *tunnel.PeerError
		if errors.As(e, &p) && p.Index < len(why) {
			why[p.Index] = p.Err.Error()
		} else {
			rest = append(rest, e)
		}
	}
	c.leaveOut(why)
	return errors.Join(rest...)
}

// used counts the records of which a peer is left; those of one record stand side by side.
func (c *carriedPeers) used() (n int) {
	for i := range c.of {
		if i == 0 || c.of[i].record != c.of[i-1].record {
			n++
		}
	}
	return n
}

// skipped lists what is not used, or not wholly, in the form of Status.Skipped.
func (c *carriedPeers) skipped() []Skipped { return slices.Concat(skippedOf(c.reached), c.notes) }
