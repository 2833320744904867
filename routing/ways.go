package routing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
	"weft/routing/underlay"
	"weft/tunnel"
	"weft/tunnel/port"
)

// way is one subnet of a peer: how packets get there, or why they do not, and what its type reads from the
// record.
type way struct {
	Reached
	r             *lease.Record // of the set
	six           bool
	public, local netip.Addr // the peer's address on the underlay and ours, of the subnet's family
	data          json.RawMessage

	mac  kernel.MAC
	port uint16
	// needs is what no other record may have. sources are the further addresses that the peer's datagrams come
	// from: one that another record has is taken out.
	needs   claim
	sources []netip.Addr
}

// ways are the subnets of all peers of which the network has the family, in the set's order. Those whose
// record is of another type than name are skipped.
func (s situation) ways(name string) []way {
	out := make([]way, 0, len(s.set.Peers)*len(s.set.Config.Networks()))
	for i := range s.set.Peers {
		r := &s.set.Peers[i]
		for _, six := range []bool{false, true} {
			w := way{r: r, six: six, public: r.PublicIP, local: s.under.Addr4, data: r.BackendData}
			subnet, own, network := r.V4, s.set.Own.V4, s.set.Config.Network
			if six {
				w.public, w.local, w.data = r.PublicIPv6, s.under.Addr6, r.BackendV6Data
				subnet, own, network = r.V6, s.set.Own.V6, s.set.Config.IPv6Network
			}
			if !subnet.IsValid() || !network.IsValid() || !own.IsValid() {
				continue
			}
			w.Reached = Reached{Peer: r.Called(), Node: r.Node(), Address: r.Address(), Subnets: r.Subnets,
				Subnet: subnet, Via: w.public}
			if why := foreign(*r, name); why != "" {
				w.skip("%s", why)
			}
			out = append(out, w)
		}
	}
	return out
}

// skip reports that a subnet is not reached.
func (r *Reached) skip(format string, a ...any) {
	r.How, r.Reason = HowSkipped, fmt.Sprintf(format, a...)
}

// foreign says of a record of another type than name what it is; "" if it is of that type.
func foreign(r lease.Record, name string) string {
	if strings.EqualFold(lease.BackendName(r.BackendType), name) {
		return ""
	}
	have := lease.BackendName("")
	if r.BackendType != "" {
		have = strconv.Quote(r.BackendType) // anything may be in one
	}
	return fmt.Sprintf("its backend is %s, this network's is %s", have, name)
}

// field names the record's field for the way's family.
func (w *way) field(four, six string) string {
	if w.six {
		return six
	}
	return four
}

func (w *way) publicKey() string { return w.field("PublicIP", "PublicIPv6") }
func (w *way) dataKey() string   { return w.field("BackendData", "BackendV6Data") }
func (w *way) family() string    { return w.field("IPv4", "IPv6") }

// direct skips a way if the peer or this node has no address in its family, and reports whether it is used.
func (w *way) direct() bool {
	if !w.public.IsValid() || !w.local.IsValid() {
		w.skip("it has no %s, or this node has none", w.publicKey())
	}
	return w.How != HowSkipped
}

// encapsulated is direct with a reason for each of the two, for a tunnel of the subnet's family.
func (w *way) encapsulated() bool {
	if !w.public.IsValid() {
		w.skip("it has no %s", w.publicKey())
	} else if !w.local.IsValid() {
		w.skip("this node has no %s address on the underlay", w.family())
	}
	return w.How != HowSkipped
}

// choose decides between a plain route and the tunnel, for a subnet that has both; direct allows the first.
// The reason says why not the better one, with type auto also why that.
func (w *way) choose(s situation, direct, auto bool) {
	if w.How = HowTunnel; !direct {
		return
	}
	h, known := s.hops[w.public]
	if w.Reason = "the way is not known yet"; known {
		w.Reason = h.Indirect(w.public, s.under.Name)
	}
	if w.Reason != "" {
		return
	}
	if w.How = HowRoute; auto {
		w.Reason = fmt.Sprintf("%v is on %s itself, so that it needs no tunnel", w.public, s.under.Name)
	}
}

// route is a plain one to the peer.
func (w *way) route(s situation) kernel.Route {
	return kernel.PeerRoute(w.Subnet, w.public, s.under.Name, w.mtu(s.mtu))
}

// mtu is the MTU of a route to a peer that takes less than we do; 0 if it takes as much, or says nothing. It
// is not below the minimum that every host has to accept.
func (w *way) mtu(ours int) int {
	if w.r.Weft == nil || w.r.Weft.MTU <= 0 || w.r.Weft.MTU >= ours {
		return 0
	}
	if w.six {
		return max(w.r.Weft.MTU, minMTU6)
	}
	return max(w.r.Weft.MTU, minMTU4)
}

// claim is something that only one peer can have: an address that its datagrams come from, on a device of
// the kernel's, where forwarding goes by it, a MAC, or a public key of WireGuard. It is comparable.
type claim struct {
	addr netip.Addr
	mac  kernel.MAC
	six  bool // of a MAC: the device's family
	key  wireguard.PublicKey
}

// taken says of a claim that another peer has it.
func (c claim) taken(by string) string {
	switch {
	case c.addr.IsValid():
		return fmt.Sprintf("its address %v is %s's too, which had it first: give the nodes addresses of their "+
			"own, or delete the record that is wrong", c.addr, by)
	case c.mac != kernel.MAC{}:
		return fmt.Sprintf("its VtepMAC %v is %s's too, which had it first: %s", c.mac, by, sameMAC)
	}
	return fmt.Sprintf("its PublicKey %v is %s's too, which had it first: %s", c.key, by, sameKey)
}

// claims say which record holds each claim: they have the subnets of the record to which the claim was
// granted last time. A record that claims what another one was granted gets nothing from it. Otherwise anybody
// who can write one record could cut off any node. They are immutable.
type claims map[claim]lease.Subnets

// has reports whether a claim was granted to the record: one of its subnets stays when the other family is
// turned on or off.
func (cs claims) has(c claim, now lease.Subnets) bool {
	before := cs[c]
	return before.V4.IsValid() && before.V4 == now.V4 || before.V6.IsValid() && before.V6 == now.V6
}

// of are the claims with those owners: cs itself, which may have thousands, if nothing changed.
func (cs claims) of(owner map[claim]*way) claims {
	same := len(owner) == len(cs)
	for c, w := range owner {
		same = same && cs[c] == w.Subnets
	}
	if same {
		return cs
	}
	after := make(claims, len(owner))
	for c, w := range owner {
		after[c] = w.Subnets
	}
	return after
}

// assign grants every claim to one record, and skips the ways that do not get what they need. The record that
// has it already keeps it, as long as it is there and claims it. Else what is needed goes before a further
// address, and the claim of a record that is older in the store before that of a younger one. Then it skips
// the ways whose address the overlay cuts off. It is deterministic.
func (d *desired) assign(s situation) {
	var order []*way
	for w := range d.used() {
		order = append(order, w)
	}
	slices.SortStableFunc(order, func(a, b *way) int {
		switch aHas, bHas := s.claims.has(a.needs, a.Subnets), s.claims.has(b.needs, b.Subnets); {
		case aHas && !bHas:
			return -1
		case bHas && !aHas:
			return 1
		case a.r.Created == 0 || b.r.Created == 0: // an age that is unknown comes last
			return cmp.Compare(b.r.Created, a.r.Created)
		}
		return cmp.Compare(a.r.Created, b.r.Created)
	})
	owner := make(map[claim]*way, len(order))
	take := func(c claim, w *way) *way {
		if owner[c] == nil {
			owner[c] = w
		}
		return owner[c]
	}
	for _, w := range order {
		if o := take(w.needs, w); o.r != w.r {
			w.skip("%s", w.needs.taken(o.Peer))
			continue
		}
		for _, a := range w.sources {
			if c := (claim{addr: a}); s.claims.has(c, w.Subnets) {
				take(c, w)
			}
		}
	}
	for _, w := range order {
		if w.How == HowSkipped {
			continue
		}
		w.sources = slices.DeleteFunc(w.sources, func(a netip.Addr) bool {
			o := take(claim{addr: a}, w)
			n := Skipped{Peer: w.Peer, Node: w.Node, Address: w.Address, Subnets: w.Subnets,
				Reason: fmt.Sprintf("its further address %v is %s's", a, o.Peer)}
			if o.r != w.r && !slices.Contains(d.notes, n) { // it may be said of the other family already
				d.notes = append(d.notes, n)
			}
			return o.r != w.r
		})
	}
	d.claims = s.claims.of(owner)
	cut := make(map[netip.Addr]underlay.Displaced, len(s.displaced))
	for _, x := range s.displaced {
		cut[x.Addr] = x
	}
	for w := range d.used() {
		if x, is := cut[w.Via]; is {
			w.skip("%s", x.Reason("its address"))
		}
	}
}

// send has the way's datagrams go to an address, and come from there or from another one of the record's: of
// either family with both, else of the subnet's.
func (w *way) send(to netip.Addr, both bool) {
	w.Via, w.needs = to, claim{addr: to}
	all := []netip.Addr{w.r.PublicIP, w.r.PublicIPv6}
	if x := w.r.Weft; x != nil {
		all = append(all, x.Addrs...)
	}
	w.sources = slices.DeleteFunc(unique(valid(all...)), func(a netip.Addr) bool {
		return a == to || !both && a.Unmap().Is6() != w.six
	})
}

// carry makes the table of the data plane. A record is one peer, with both its addresses and subnets, if both
// says so; else each of its ways is one. recv is what this node parses beyond one complete packet a datagram:
// peers say the same of themselves.
func (d *desired) carry(s situation, from senders, both bool, recv port.Recv) {
	d.assign(s)
	spec := localSpec(s, from)
	// If it grew with thousands of peers, it would leave several times that much garbage at each change of one.
	spec.Peers = make([]tunnel.PeerSpec, 0, len(d.ways))
	var last *lease.Record
	for w := range d.used() {
		if w.How == HowRoute {
			d.Routes = append(d.Routes, w.route(s))
		}
		if n := len(spec.Peers); both && w.r == last {
			spec.Peers[n-1].Subnets = append(spec.Peers[n-1].Subnets, w.Subnet)
			continue
		}
		p := tunnel.PeerSpec{Name: w.Peer, Addr: w.Via, Subnets: []netip.Prefix{w.Subnet}, MAC: w.mac,
			InnerSources: []netip.Addr{w.public}}
		if both {
			p.InnerSources = valid(w.r.PublicIP, w.r.PublicIPv6)
		}
		if len(w.sources) > 0 { // an empty slice would keep its memory
			p.Sources = w.sources
		}
		if x := w.r.Weft; x != nil {
			p.Weft, p.MTU = true, x.MTU
			if recv != 0 {
				p.Recv = port.ParseRecv(x.Recv)
			}
		}
		spec.Peers, last = append(spec.Peers, p), w.r
	}
	for i := range d.ways { // so that nobody else sends with their addresses
		if w := &d.ways[i]; w.How == HowSkipped {
			spec.LeftOut = append(spec.LeftOut, tunnel.PeerSpec{Name: w.Peer, Subnets: []netip.Prefix{w.Subnet}})
		}
	}
	d.spec = &spec
}

// localSpec is what concerns this node itself.
func localSpec(at situation, from senders) tunnel.Spec {
	own, u := at.set.Own, at.under
	s := tunnel.Spec{
		Local:       subnets(own.Subnets),
		UnderlayMTU: at.outer, MTU: at.mtu,
		Check: from.check(), AllowedSources: from.AllowedSources,
	}
	self := []netip.Addr{u.Addr4, u.Addr6, u.Ext4, u.Ext6}
	if own.Weft != nil {
		self = append(self, own.Weft.Addrs...)
	}
	s.Self = unique(valid(self...))
	if own.V4.IsValid() {
		s.Address4 = own.V4.Addr()
	}
	if own.V6.IsValid() {
		s.Address6 = own.V6.Addr()
	}
	return s
}

// refuse leaves out the peers that the data plane has not taken, with the routes to them.
func (d *desired) refuse(refused []*tunnel.PeerError) {
	for _, p := range refused {
		for w := range d.used() {
			if slices.Contains(d.spec.Peers[p.Index].Subnets, w.Subnet) {
				w.skip("%v", p.Err)
				d.Routes = slices.DeleteFunc(d.Routes, func(x kernel.Route) bool { return x.Dst == w.Subnet.Masked() })
			}
		}
	}
}

func subnets(s lease.Subnets) []netip.Prefix {
	return slices.DeleteFunc([]netip.Prefix{s.V4, s.V6}, func(p netip.Prefix) bool { return !p.IsValid() })
}

// valid returns those of addrs that are set; it reuses the slice.
func valid(addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() })
}

func unique(as []netip.Addr) []netip.Addr {
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}

// shorten quotes what a record says, for a message.
func shorten(b []byte) string {
	const most = 60
	return fmt.Sprintf("%.*q", most, b)
}
