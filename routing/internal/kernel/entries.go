package kernel

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"weft/encap"
)

// MAC is an Ethernet address; the zero MAC is none.
type MAC = encap.MAC

// ParseMAC reads a MAC in the form of a lease record: six bytes in hex, with colons. Any other
// length that net.ParseMAC takes is an error, and so is an address that no single device can have.
func ParseMAC(s string) (MAC, error) {
	b, err := net.ParseMAC(s)
	if err != nil || len(b) != len(MAC{}) {
		return MAC{}, fmt.Errorf("%q is no Ethernet address", s)
	}
	m := MAC(b)
	if m == (MAC{}) || group(m) {
		return MAC{}, fmt.Errorf("%s is no single device's address", m)
	}
	return m, nil
}

// group reports whether m is a multicast or the broadcast address (IEEE 802, the first bit on
// the wire).
func group(m MAC) bool { return m[0]&1 != 0 }

// ParseMACPrefix reads the key MacPrefix, as "0E-2A" or "0e:2a": the first two bytes.
func ParseMACPrefix(s string) (p [2]byte, err error) {
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

// planNeighs deletes only entries that are permanent, on our devices and within our networks; the
// kernel's own entries for groups and link-local addresses are not.
func planNeighs(c *Changes, have, want []Neigh, own Ownership) {
	type key struct {
		link string
		addr netip.Addr
	}
	c.SetNeighs, c.DelNeighs = planEntries(have, want, func(n Neigh) key { return key{n.Link, n.Addr} },
		func(n Neigh) bool { return n.Permanent && own.OwnsLink(n.Link) && own.contains(n.Addr) },
		func(a, b Neigh) int { return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Compare(b.Addr)) })
}

// planFDBs deletes only entries that are permanent, on our devices and for one address: those that
// the kernel learnt, and those for groups, are not ours.
func planFDBs(c *Changes, have, want []FDB, own Ownership) {
	type key struct {
		link string
		mac  MAC
	}
	c.SetFDBs, c.DelFDBs = planEntries(have, want, func(f FDB) key { return key{f.Link, f.MAC} },
		func(f FDB) bool {
			return f.Permanent && own.OwnsLink(f.Link) && !group(f.MAC) && f.MAC != (MAC{})
		},
		func(a, b FDB) int { return cmp.Or(cmp.Compare(a.Link, b.Link), bytes.Compare(a.MAC[:], b.MAC[:])) })
}

// planEntries returns in order what of want is not there, and what of have goes: it is ours, and nothing is
// wanted in its place.
func planEntries[T, K comparable](have, want []T, place func(T) K, ours func(T) bool,
	order func(a, b T) int) (set, del []T) {
	wanted := make(map[K]bool, len(want))
	for _, w := range want {
		wanted[place(w)] = true
	}
	there := make(map[T]bool, len(have))
	for _, h := range have {
		there[h] = true
		if !wanted[place(h)] && ours(h) {
			del = append(del, h)
		}
	}
	for _, w := range want {
		if !there[w] {
			set = append(set, w)
		}
	}
	slices.SortFunc(set, order)
	slices.SortFunc(del, order)
	return set, del
}

// String is as iproute2 shows it.
func (n Neigh) String() string { return fmt.Sprintf("%v lladdr %v dev %s", n.Addr, n.MAC, n.Link) }

// String is as iproute2 shows it.
func (f FDB) String() string { return fmt.Sprintf("%v dst %v dev %s", f.MAC, f.Dst, f.Link) }
