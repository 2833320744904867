package routing

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// MAC is an Ethernet address. It is comparable; the zero MAC is none.
type MAC [6]byte

// ParseMAC reads the form of a lease record: six bytes in hex, with colons. Any other length
// that net.ParseMAC takes is an error, and so is an address that no single device can have.
func ParseMAC(s string) (MAC, error) {
	b, err := net.ParseMAC(s)
	if err != nil || len(b) != len(MAC{}) {
		return MAC{}, fmt.Errorf("%q is no Ethernet address", s)
	}
	m := MAC(b)
	if m == (MAC{}) || m.group() {
		return MAC{}, fmt.Errorf("%s is no single device's address", m)
	}
	return m, nil
}

// String is the form of ParseMAC, in lower case.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// group reports whether m is a multicast or the broadcast address (IEEE 802, the first bit on
// the wire).
func (m MAC) group() bool { return m[0]&1 != 0 }

// parseMACPrefix reads the key MacPrefix, as "0E-2A" or "0e:2a": the first two bytes.
func parseMACPrefix(s string) (p [2]byte, err error) {
	b, err := hex.DecodeString(strings.NewReplacer("-", "", ":", "").Replace(s))
	if err != nil || len(b) != len(p) || b[0]&1 != 0 {
		return p, fmt.Errorf("%q is no two bytes that an Ethernet address of one device begins with", s)
	}
	return [2]byte(b), nil
}

// Neigh is an entry of a device's ARP or neighbour table. It is comparable.
type Neigh struct {
	Link      string
	Addr      netip.Addr
	MAC       MAC
	Permanent bool // NUD_PERMANENT: the kernel neither asks nor forgets
}

// FDB is an entry of a vxlan device's forwarding table: frames for MAC go to Dst. It is comparable.
type FDB struct {
	Link      string
	MAC       MAC
	Dst       netip.Addr
	Permanent bool
}

// overlay is all that a backend keeps in the kernel besides its devices: what there is,
// or what there should be.
type overlay struct {
	Addrs  []Addr
	Routes []Route
	Neighs []Neigh
	FDBs   []FDB
}

// equal reports whether o and p list the same objects in the same order.
func (o overlay) equal(p overlay) bool {
	return slices.Equal(o.Addrs, p.Addrs) && slices.Equal(o.Routes, p.Routes) &&
		slices.Equal(o.Neighs, p.Neighs) && slices.Equal(o.FDBs, p.FDBs)
}

// without leaves out what needs one of those links.
func (o overlay) without(links []string) overlay {
	if len(links) == 0 {
		return o
	}
	gone := func(link string) bool { return slices.Contains(links, link) }
	return overlay{
		Addrs:  slices.DeleteFunc(slices.Clone(o.Addrs), func(a Addr) bool { return gone(a.Link) }),
		Routes: slices.DeleteFunc(slices.Clone(o.Routes), func(r Route) bool { return gone(r.Link) }),
		Neighs: slices.DeleteFunc(slices.Clone(o.Neighs), func(n Neigh) bool { return gone(n.Link) }),
		FDBs:   slices.DeleteFunc(slices.Clone(o.FDBs), func(f FDB) bool { return gone(f.Link) }),
	}
}

// overlayChanges is a plan. Setting an entry replaces what is there for the same address.
type overlayChanges struct {
	Changes
	SetNeighs, DelNeighs []Neigh
	SetFDBs, DelFDBs     []FDB
}

// len is how many kernel calls the plan makes, about.
func (c overlayChanges) len() int {
	return c.Len() + len(c.SetNeighs) + len(c.DelNeighs) + len(c.SetFDBs) + len(c.DelFDBs)
}

// planOverlay says how to get from have to want. It is pure and deterministic. own.Links
// are our devices.
func planOverlay(have, want overlay, own Ownership) overlayChanges {
	var c overlayChanges
	for _, link := range own.Links {
		var part Changes
		on := func(a Addr) bool { return a.Link != link }
		mine := own
		mine.Link = link
		planAddrs(&part, State{Addrs: slices.DeleteFunc(slices.Clone(have.Addrs), on)},
			State{Addrs: slices.DeleteFunc(slices.Clone(want.Addrs), on)}, mine)
		c.AddAddrs, c.DelAddrs = append(c.AddAddrs, part.AddAddrs...), append(c.DelAddrs, part.DelAddrs...)
	}
	planRoutes(&c.Changes, State{Routes: have.Routes}, State{Routes: want.Routes}, own)
	planNeighs(&c, have.Neighs, want.Neighs, own)
	planFDBs(&c, have.FDBs, want.FDBs, own)
	return c
}

// planNeighs deletes what is permanent, on our devices and within our networks: the kernel's own
// entries for groups and link-local addresses are none of these.
func planNeighs(c *overlayChanges, have, want []Neigh, own Ownership) {
	type key struct {
		link string
		addr netip.Addr
	}
	wanted := make(map[key]Neigh, len(want))
	for _, w := range want {
		wanted[key{w.Link, w.Addr}] = w
	}
	there := make(map[Neigh]bool, len(have))
	for _, h := range have {
		there[h] = true
		_, keep := wanted[key{h.Link, h.Addr}]
		if own.Sweep && !keep && h.Permanent && slices.Contains(own.Links, h.Link) && own.within(netip.PrefixFrom(h.Addr, h.Addr.BitLen())) {
			c.DelNeighs = append(c.DelNeighs, h)
		}
	}
	for _, w := range want {
		if !there[w] {
			c.SetNeighs = append(c.SetNeighs, w)
		}
	}
	order := func(a, b Neigh) int { return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Compare(b.Addr)) }
	slices.SortFunc(c.SetNeighs, order)
	slices.SortFunc(c.DelNeighs, order)
}

// planFDBs deletes what is permanent, on our devices and for one address: entries that the
// kernel learnt, and those for groups, are not ours.
func planFDBs(c *overlayChanges, have, want []FDB, own Ownership) {
	type key struct {
		link string
		mac  MAC
	}
	wanted := make(map[key]bool, len(want))
	for _, w := range want {
		wanted[key{w.Link, w.MAC}] = true
	}
	there := make(map[FDB]bool, len(have))
	for _, h := range have {
		there[h] = true
		if own.Sweep && !wanted[key{h.Link, h.MAC}] && h.Permanent && slices.Contains(own.Links, h.Link) && !h.MAC.group() && h.MAC != (MAC{}) {
			c.DelFDBs = append(c.DelFDBs, h)
		}
	}
	for _, w := range want {
		if !there[w] {
			c.SetFDBs = append(c.SetFDBs, w)
		}
	}
	order := func(a, b FDB) int { return cmp.Or(cmp.Compare(a.Link, b.Link), bytes.Compare(a.MAC[:], b.MAC[:])) }
	slices.SortFunc(c.SetFDBs, order)
	slices.SortFunc(c.DelFDBs, order)
}

// overlayChanger is the part of the kernel that applying a plan needs.
type overlayChanger interface {
	changer
	SetNeigh(Neigh) error
	DelNeigh(Neigh) error
	SetFDB(FDB) error
	DelFDB(FDB) error
}

// applyOverlay makes the changes: a peer's entries before the route that leads to them, and
// all that is new before anything goes. It tries everything and joins the errors; done is
// how many succeeded.
func applyOverlay(k overlayChanger, c overlayChanges) (done int, err error) {
	first, err1 := applyChanges(k, Changes{SetLinks: c.SetLinks, AddAddrs: c.AddAddrs})
	n1, err2 := each(c.SetNeighs, k.SetNeigh, "set neighbour")
	n2, err3 := each(c.SetFDBs, k.SetFDB, "set forwarding entry")
	then, err4 := applyChanges(k, Changes{AddRoutes: c.AddRoutes, ReplaceRoutes: c.ReplaceRoutes, DelRoutes: c.DelRoutes, Conflicts: c.Conflicts})
	n3, err5 := each(c.DelNeighs, k.DelNeigh, "delete neighbour")
	n4, err6 := each(c.DelFDBs, k.DelFDB, "delete forwarding entry")
	last, err7 := applyChanges(k, Changes{DelAddrs: c.DelAddrs})
	return first + n1 + n2 + then + n3 + n4 + last, errors.Join(err1, err2, err3, err4, err5, err6, err7)
}

func each[T fmt.Stringer](l []T, do func(T) error, what string) (done int, err error) {
	var faults []error
	for _, x := range l {
		if err := do(x); err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", what, x, err))
			continue
		}
		done++
	}
	return done, errors.Join(faults...)
}

// String is as iproute2 shows it.
func (n Neigh) String() string { return fmt.Sprintf("%v lladdr %v dev %s", n.Addr, n.MAC, n.Link) }

// String is as iproute2 shows it.
func (f FDB) String() string { return fmt.Sprintf("%v dst %v dev %s", f.MAC, f.Dst, f.Link) }
