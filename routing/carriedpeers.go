package routing

import (
	"fmt"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
)

// carriedOf ties a peer of the data plane to the record that it comes from.
type carriedOf struct {
	record *lease.Record // of the set
	// reached[first:end] is what is reported about it; nothing where there is one way only.
	first, end int
}

// room makes room for so many peers at once: of thousands, growing would leave several times that behind as
// garbage, at each change of one of them.
func (d *desired) room(peers int) {
	d.spec.Peers, d.of = make([]tunnel.PeerSpec, 0, peers), make([]carriedOf, 0, peers)
}

// skip reports that a record is not used, with the reason, for each of its subnets.
func (d *desired) skip(r *lease.Record, p tunnel.PeerSpec, why string) {
	for _, n := range p.Subnets {
		report := Reached{Peer: p.Name, Subnets: r.Subnets, Subnet: n, How: HowTunnel, Via: p.Addr}
		d.reached = append(d.reached, report.skip("%s", why))
	}
}

// add appends a peer; what is reported about it is what stands from first on. r is the set's.
func (d *desired) add(r *lease.Record, p tunnel.PeerSpec, first int) {
	d.spec.Peers, d.of = append(d.spec.Peers, p), append(d.of, carriedOf{r, first, len(d.reached)})
}

// settleAddrs leaves out the peers whose address another one has, or the overlay cuts off. The Sources of those
// that stay are sorted, without those of others, and do not repeat Addr.
func (d *desired) settleAddrs(before tenure, displaced []underlay.Displaced) {
	bidders := make([]bidder, len(d.spec.Peers))
	for i := range d.spec.Peers {
		p := &d.spec.Peers[i]
		b := bidder{subnets: d.of[i].record.Subnets, created: d.of[i].record.Created, first: claim{addr: p.Addr}}
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
	d.tenure = after
	out := leftOut{}
	for i, g := range grants {
		p := &d.spec.Peers[i]
		if g.by != i {
			out[i] = fmt.Sprintf("its address %v is %s's too, which had it first: give the nodes addresses of their own, or delete the record that is wrong", p.Addr, d.spec.Peers[g.by].Name)
		}
		for _, l := range slices.Backward(g.lost) {
			d.notes = append(d.notes, Skipped{Peer: p.Name, Subnets: d.of[i].record.Subnets,
				Reason: fmt.Sprintf("its further address %v is %s's", p.Sources[l[0]], d.spec.Peers[l[1]].Name)})
			p.Sources = slices.Delete(p.Sources, l[0], l[0]+1)
		}
	}
	by := make(map[netip.Addr]underlay.Displaced, len(displaced))
	for _, x := range displaced {
		by[x.Addr] = x
	}
	for i, p := range d.spec.Peers {
		if x, cut := by[p.Addr]; cut && out[i] == "" {
			out[i] = x.Reason("its address")
		}
	}
	d.leaveOut(out)
}

// leftOut says why peers are not used, by their place in spec.Peers.
type leftOut map[int]string

// leaveOut drops those peers, with the routes to them.
func (d *desired) leaveOut(out leftOut) {
	if len(out) == 0 {
		return
	}
	n := 0
	for i := range d.spec.Peers {
		reason, drop := out[i]
		if !drop {
			d.spec.Peers[n], d.of[n] = d.spec.Peers[i], d.of[i]
			n++
			continue
		}
		if d.of[i].first == d.of[i].end {
			d.skip(d.of[i].record, d.spec.Peers[i], reason)
		}
		for j := d.of[i].first; j < d.of[i].end; j++ {
			r := d.reached[j]
			d.Routes = slices.DeleteFunc(d.Routes, func(x kernel.Route) bool { return x.Dst == r.Subnet.Masked() })
			d.reached[j] = r.skip("%s", reason)
		}
	}
	clear(d.spec.Peers[n:])
	d.spec.Peers, d.of = d.spec.Peers[:n], d.of[:n]
}

// refuse leaves out the peers that the data plane has not taken.
func (d *desired) refuse(refused []*tunnel.PeerError) {
	out := leftOut{}
	for _, p := range refused {
		out[p.Index] = p.Err.Error()
	}
	d.leaveOut(out)
}
