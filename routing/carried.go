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

// localSpec is what concerns this node itself.
func localSpec(at situation, from senders) *tunnel.Spec {
	set, u := at.set, at.under
	s := tunnel.Spec{
		Local:       subnets(set.Own.Subnets),
		UnderlayMTU: at.outer, MTU: at.mtu,
		Check: from.check(), AllowedSources: from.AllowedSources,
		Self: unique(valid(u.Addr4, u.Addr6, u.Ext4, u.Ext6)),
	}
	if set.Own.Weft != nil {
		s.Self = unique(append(s.Self, valid(set.Own.Weft.Addrs...)...))
	}
	if set.Own.V4.IsValid() {
		s.Address4 = set.Own.V4.Addr()
	}
	if set.Own.V6.IsValid() {
		s.Address6 = set.Own.V6.Addr()
	}
	return &s
}

// carriedOf joins a peer of the data plane to the record from which it comes.
type carriedOf struct {
	record *lease.Record // of the set
	// reached[first:end] is what is reported about it; nothing where there is one way only.
	first, end int
}

// room allocates memory for so many peers at once. If the slices grew with thousands of peers, they would
// leave several times that much garbage, at each change of one of them.
func (d *desired) room(peers int) {
	d.spec.Peers, d.of = make([]tunnel.PeerSpec, 0, peers), make([]carriedOf, 0, peers)
}

// skip reports that a record is not used, with the reason, for each of its subnets.
func (d *desired) skip(r *lease.Record, p tunnel.PeerSpec, why string) {
	for _, n := range p.Subnets {
		report := Reached{Peer: p.Name, Node: r.Node(), Address: r.Address(), Subnets: r.Subnets, Subnet: n,
			How: HowTunnel, Via: p.Addr}
		d.reached = append(d.reached, report.skip("%s", why))
	}
}

// add appends a peer; what is reported about it is what stands from first on. r is the set's.
func (d *desired) add(r *lease.Record, p tunnel.PeerSpec, first int) {
	d.spec.Peers, d.of = append(d.spec.Peers, p), append(d.of, carriedOf{r, first, len(d.reached)})
}

// carry adds a way as a peer of the data plane, unless it is skipped, with a plain route if packets go by
// that.
func (d *desired) carry(w way, p tunnel.PeerSpec, s situation) {
	if d.reached = append(d.reached, w.report); w.report.How == HowSkipped {
		return
	}
	if w.report.How == HowRoute {
		d.Routes = append(d.Routes, w.route(s))
	}
	d.add(w.r, p, len(d.reached)-1)
}

// peer is the way as a peer of the data plane that has addresses of the way's family only.
func (w way) peer() tunnel.PeerSpec {
	p := tunnel.PeerSpec{Name: w.report.Peer, Addr: w.f.public, Subnets: []netip.Prefix{w.f.subnet},
		InnerSources: []netip.Addr{w.f.public}, Sources: []netip.Addr{w.f.public}}
	if x := w.r.Weft; x != nil {
		p.Weft, p.MTU = true, x.MTU
		for _, a := range x.Addrs {
			if a.IsValid() && a.Unmap().Is6() == w.f.six {
				p.Sources = append(p.Sources, a)
			}
		}
	}
	return p
}

// settleAddrs leaves out the peers whose address another one has, or the overlay cuts off. The Sources of
// those that stay are sorted, without those of others, and do not repeat Addr.
func (d *desired) settleAddrs(before tenure, displaced []underlay.Displaced) {
	for i := range d.spec.Peers {
		p := &d.spec.Peers[i]
		p.Sources = slices.DeleteFunc(unique(p.Sources), func(a netip.Addr) bool { return a == p.Addr })
		if len(p.Sources) == 0 {
			p.Sources = nil // an empty one would keep its memory
		}
	}
	if d.tenure = before; len(displaced) == 0 && before.holds(len(d.spec.Peers), d.bidder) {
		return
	}
	bidders := make([]bidder, len(d.spec.Peers))
	for i := range bidders {
		bidders[i] = d.bidder(i)
	}
	grants, after := settle(bidders, before)
	d.tenure = after
	out := leftOut{}
	for i, g := range grants {
		p := &d.spec.Peers[i]
		if g.by != i {
			out[i] = fmt.Sprintf("its address %v is %s's too, which had it first: give the nodes addresses of their "+
				"own, or delete the record that is wrong", p.Addr, d.spec.Peers[g.by].Name)
		}
		for _, l := range slices.Backward(g.lost) {
			d.notes = append(d.notes, Skipped{Peer: p.Name, Node: d.of[i].record.Node(),
				Address: d.of[i].record.Address(), Subnets: d.of[i].record.Subnets,
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

// bidder is the peer at i of spec with the addresses that it claims.
func (d *desired) bidder(i int) bidder {
	p := &d.spec.Peers[i]
	b := bidder{subnets: d.of[i].record.Subnets, created: d.of[i].record.Created, first: claim{addr: p.Addr}}
	for _, a := range p.Sources {
		b.further = append(b.further, claim{addr: a})
	}
	return b
}

// leftOut has the reasons why peers are not used, by their place in spec.Peers.
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

// unreached are the subnets to which there is no way, each as a peer of its own.
func (d *desired) unreached() (out []tunnel.PeerSpec) {
	for _, r := range d.reached {
		if r.How == HowSkipped {
			out = append(out, tunnel.PeerSpec{Name: r.Peer, Subnets: []netip.Prefix{r.Subnet}})
		}
	}
	return out
}

// refuse leaves out the peers that the data plane has not taken.
func (d *desired) refuse(refused []*tunnel.PeerError) {
	out := leftOut{}
	for _, p := range refused {
		out[p.Index] = p.Err.Error()
	}
	d.leaveOut(out)
}

// gateway6 is the gateway of the route to the IPv6 network by the TUN. Nobody has this address. But without a
// gateway the kernel makes a neighbour entry for every destination, on a TUN too, and it has room for 1,024
// entries that are not permanent (net.ipv6.neigh.default.gc_thresh3), for all devices and namespaces of the
// host together. When they are full, a packet to another pod fails with EINVAL. IPv4 needs no gateway on a
// point-to-point link.
var gateway6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})

// txQueueLen is how many packets the TUN's queue holds before the kernel drops the
// next one at its tail. Past the TUN the sender's TCP has no back-pressure, so one bulk
// stream fills whatever is there, and every other flow waits behind it; too short, and a
// burst of small packets is lost before the worker is on the CPU. On path portable 1000
// packets of 1472 bytes are drained in 6 to 12 ms at the 1 to 2 Gb/s of that path. On path
// socket, of 64-byte datagrams delivered with less than 0.5 % loss, 128 gave 1.1 times what
// the kernel's vxlan did in the same run, 500 gave 1.4, and 2000 gave 1.5. One bulk
// stream cannot fill it with superpackets: 64 of them are all that tcp_wmem's 4 MB allow.
//
// It is also what waits while one weftd follows another (docs/operations.md): a second's worth at a thousand
// packets a second.
const txQueueLen = 1000

// tunState returns what the kernel is to have on the data plane's TUN for our lease.
func tunState(name string, mtu int, own lease.Subnets, c lease.NetworkConfig) kernel.State {
	s := kernel.State{Links: []kernel.Link{{Name: name, Alias: kernel.Alias, MTU: mtu, TxQueueLen: txQueueLen,
		Up: true}}}
	for _, f := range []struct {
		subnet, network netip.Prefix
		route           kernel.Route
	}{
		{own.V4, c.Network, kernel.Route{Scope: kernel.ScopeLink}},
		{own.V6, c.IPv6Network, kernel.Route{Gateway: gateway6, Scope: kernel.ScopeUniverse,
			Metric: kernel.DefaultMetric6}},
	} {
		if !f.subnet.IsValid() || !f.network.IsValid() {
			continue
		}
		base := f.subnet.Masked().Addr()
		s.Addrs = append(s.Addrs, kernel.Addr{Link: name, Prefix: netip.PrefixFrom(base, base.BitLen())})
		r := f.route
		r.Dst, r.Link, r.Protocol = f.network.Masked(), name, kernel.RouteProtocol
		s.Routes = append(s.Routes, r)
		if r.Gateway.IsValid() { // for good, so that none is ever to be made; a TUN has no link addresses
			s.Neighs = append(s.Neighs, kernel.Neigh{Link: name, Addr: r.Gateway, Permanent: true})
		}
	}
	return s
}
