package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// RouteProtocol marks our routes ("proto 119" in ip route). The number lies among
// those that rtnetlink.h leaves to user space, and neither that header nor iproute2's rt_protos
// assigns it: 99 is openr, 186 bgp, 42 babel, and 128 to 255 have been used by
// various daemons.
const RouteProtocol = 119

// ProtoBoot is RTPROT_BOOT of rtnetlink.h, which flannel's routes carry.
const ProtoBoot = 3

// Alias marks our links ("ip link show" prints it as alias).
const Alias = "weft"

// Addr is an address of a device. It is comparable.
type Addr struct {
	Link   string
	Prefix netip.Prefix // with host bits
}

// Route is a unicast route in the main table. It is comparable.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr // the zero Addr if the destination is on the link
	Link     string
	Metric   uint32
	Scope    uint8 // RT_SCOPE_*, rtnetlink.h
	Protocol uint8 // RTPROT_*, rtnetlink.h
	OnLink   bool  // the gateway is taken to be on the link, whatever its address
	MTU      int   // largest packet by this route, in bytes; 0 for the link's
}

// slot identifies a place in the routing table that only one route can have.
type slot struct {
	dst    netip.Prefix
	metric uint32
}

func (r Route) slot() slot { return slot{r.Dst, r.Metric} }

// String is as iproute2 shows it.
func (a Addr) String() string { return fmt.Sprintf("%v dev %s", a.Prefix, a.Link) }

// String names the route for logs.
func (r Route) String() string { return fmt.Sprintf("%v dev %s", r.Dst, r.Link) }

// State has all objects that a backend keeps in the kernel: those that are there, or those that should be.
type State struct {
	Devices []Device
	Addrs   []Addr
	Routes  []Route
	Neighs  []Neigh
	FDBs    []FDB
}

// Equal reports whether s and t list the same objects in the same order.
func (s State) Equal(t State) bool {
	return slices.Equal(s.Devices, t.Devices) && slices.Equal(s.Addrs, t.Addrs) &&
		slices.Equal(s.Routes, t.Routes) && slices.Equal(s.Neighs, t.Neighs) && slices.Equal(s.FDBs, t.FDBs)
}

// With returns the objects of s, and then those of t.
func (s State) With(t State) State {
	return State{
		Devices: slices.Concat(s.Devices, t.Devices), Addrs: slices.Concat(s.Addrs, t.Addrs),
		Routes: slices.Concat(s.Routes, t.Routes), Neighs: slices.Concat(s.Neighs, t.Neighs),
		FDBs: slices.Concat(s.FDBs, t.FDBs),
	}
}

// Without returns s without those links, and without the objects that need one of them.
func (s State) Without(links []string) State {
	if len(links) == 0 {
		return s
	}
	return State{
		Devices: off(links, s.Devices), Addrs: off(links, s.Addrs), Routes: off(links, s.Routes),
		Neighs: off(links, s.Neighs), FDBs: off(links, s.FDBs),
	}
}

// off returns what of l is on none of those links.
func off[T interface{ on() string }](links []string, l []T) []T {
	return slices.DeleteFunc(slices.Clone(l), func(x T) bool { return slices.Contains(links, x.on()) })
}

func (d Device) on() string { return d.Name }
func (a Addr) on() string   { return a.Link }
func (r Route) on() string  { return r.Link }
func (n Neigh) on() string  { return n.Link }
func (f FDB) on() string    { return f.Link }

// Ownership says which objects a plan may change.
type Ownership struct {
	// Links are the names of our devices.
	Links []string
	// Made are the numbers of the devices that we brought up, by name.
	Made map[string]int
	// Networks are the overlay's networks.
	Networks []netip.Prefix
	// Adopts, if not nil, says which routes have flannel's shape, so that one of ours may take their
	// place. SweepAdopted has those of them that are not wanted deleted, as ours are.
	Adopts       func(Route) bool
	SweepAdopted bool
}

// OwnsLink reports whether a device is ours.
func (o Ownership) OwnsLink(name string) bool { return slices.Contains(o.Links, name) }

// ownsRoute reports whether r is ours by its mark.
func (o Ownership) ownsRoute(r Route) bool {
	return r.Protocol == RouteProtocol && (o.OwnsLink(r.Link) || o.Within(r.Dst))
}

// adoptsRoute reports whether r has the exact shape of flannel's.
func (o Ownership) adoptsRoute(r Route) bool { return o.Adopts != nil && o.Adopts(r) }

// sweepsRoute reports whether r goes if it is not wanted.
func (o Ownership) sweepsRoute(r Route) bool {
	return o.ownsRoute(r) || o.SweepAdopted && o.adoptsRoute(r)
}

// Within reports whether p lies inside one of the networks.
func (o Ownership) Within(p netip.Prefix) bool {
	return slices.ContainsFunc(o.Networks, func(n netip.Prefix) bool {
		return p.Bits() >= n.Bits() && n.Contains(p.Addr())
	})
}

// contains reports whether a lies inside one of the networks.
func (o Ownership) contains(a netip.Addr) bool {
	return slices.ContainsFunc(o.Networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Changes is a plan, in the order in which it is applied: everything is added before anything is deleted, and
// a peer's entries are added before the route that leads to them. Setting an entry replaces the one for the
// same address. Len is 0 if there is nothing to do.
type Changes struct {
	// Devices are all that are wanted and ours, those included that are as they should be.
	Devices       []DeviceChange
	AddAddrs      []Addr
	SetNeighs     []Neigh
	SetFDBs       []FDB
	AddRoutes     []Route
	ReplaceRoutes []Route // in place: what stood there is ours or adopted
	DelRoutes     []Route
	DelNeighs     []Neigh
	DelFDBs       []FDB
	DelAddrs      []Addr
	// Adopted describes what is taken over from flannel, for the log.
	Adopted []string
	// Conflicts are wanted routes whose place a foreign one holds. They are not touched.
	Conflicts []Conflict
	// Strangers are devices of others by the name of a wanted one. Nothing on them is touched.
	Strangers []Stranger
}

// Conflict is a route that we want and one of somebody else's in its place.
type Conflict struct{ Want, Have Route }

func (c Conflict) String() string {
	return fmt.Sprintf("route %v is taken by one of protocol %d dev %s, which is not ours: delete it, or stop "+
		"what made it",
		c.Want.Dst, c.Have.Protocol, c.Have.Link)
}

// Len returns about how many kernel calls the plan makes.
func (c Changes) Len() int {
	n := 0
	for _, d := range c.Devices {
		n += d.Len()
	}
	return n + len(c.AddAddrs) + len(c.SetNeighs) + len(c.SetFDBs) + len(c.AddRoutes) + len(c.ReplaceRoutes) +
		len(c.DelRoutes) + len(c.DelNeighs) + len(c.DelFDBs) + len(c.DelAddrs)
}

// Plan says how to get from have to want. It is pure and deterministic.
func Plan(have, want State, own Ownership) Changes {
	var c Changes
	have, want, own = planDevices(&c, have, want, own)
	planAddrs(&c, have, want, own)
	planNeighs(&c, have.Neighs, want.Neighs, own)
	planFDBs(&c, have.FDBs, want.FDBs, own)
	planRoutes(&c, have, want, own)
	return c
}

func planAddrs(c *Changes, have, want State, own Ownership) {
	for _, w := range want.Addrs {
		if !slices.Contains(have.Addrs, w) {
			c.AddAddrs = append(c.AddAddrs, w)
		}
	}
	for _, h := range have.Addrs {
		if own.OwnsLink(h.Link) && own.contains(h.Prefix.Addr()) && !slices.Contains(want.Addrs, h) {
			c.DelAddrs = append(c.DelAddrs, h)
		}
	}
	sortAddrs(c.AddAddrs)
	sortAddrs(c.DelAddrs)
}

func planRoutes(c *Changes, have, want State, own Ownership) {
	there := make(map[slot][]Route, len(have.Routes))
	for _, h := range have.Routes {
		there[h.slot()] = append(there[h.slot()], h)
	}
	wanted := make(map[slot]bool, len(want.Routes))
	for _, w := range want.Routes {
		wanted[w.slot()] = true
		inPlace := there[w.slot()]
		switch i := slices.IndexFunc(inPlace, func(h Route) bool {
			return !own.ownsRoute(h) && !own.adoptsRoute(h)
		}); {
		case slices.Contains(inPlace, w):
		case i >= 0:
			c.Conflicts = append(c.Conflicts, Conflict{Want: w, Have: inPlace[i]})
		case len(inPlace) == 0:
			c.AddRoutes = append(c.AddRoutes, w)
		default:
			if own.adoptsRoute(inPlace[0]) {
				c.Adopted = append(c.Adopted, fmt.Sprintf("route %v dev %s", w.Dst, w.Link))
			}
			c.ReplaceRoutes = append(c.ReplaceRoutes, w)
		}
	}
	for _, h := range have.Routes {
		if !wanted[h.slot()] && own.sweepsRoute(h) {
			c.DelRoutes = append(c.DelRoutes, h)
		}
	}
	sortRoutes(c.AddRoutes)
	sortRoutes(c.ReplaceRoutes)
	sortRoutes(c.DelRoutes)
	slices.SortFunc(c.Conflicts, func(a, b Conflict) int { return compareRoutes(a.Want, b.Want) })
}

func sortAddrs(as []Addr) {
	slices.SortFunc(as, func(a, b Addr) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), a.Prefix.Compare(b.Prefix))
	})
}

func sortRoutes(rs []Route) { slices.SortFunc(rs, compareRoutes) }

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Dst.Compare(b.Dst), cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Link, b.Link),
		a.Gateway.Compare(b.Gateway))
}

// Scopes of rtnetlink.h. IPv6 routes have none, which reads as universe.
const (
	ScopeUniverse = 0
	ScopeLink     = 253
)

// DefaultMetric6 is what the kernel makes of metric 0 in IPv6 (IP6_RT_PRIO_USER);
// IPv4 keeps 0.
const DefaultMetric6 = 1024

// PeerRoute returns a route to a peer's subnet. It has no metric of its own: that is 0 in IPv4 and
// DefaultMetric6 in IPv6.
func PeerRoute(subnet netip.Prefix, via netip.Addr, link string, mtu int) Route {
	r := Route{Dst: subnet.Masked(), Gateway: via, Link: link, Scope: ScopeUniverse, Protocol: RouteProtocol,
		MTU: mtu}
	if subnet.Addr().Is6() {
		r.Metric = DefaultMetric6
	}
	return r
}
