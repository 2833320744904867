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
	wanted := make(map[key]bool, len(want))
	for _, w := range want {
		wanted[key{w.Link, w.Addr}] = true
	}
	there := make(map[Neigh]bool, len(have))
	for _, h := range have {
		there[h] = true
		if own.Sweep && !wanted[key{h.Link, h.Addr}] && h.Permanent && own.OwnsLink(h.Link) &&
			own.contains(h.Addr) {
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

// planFDBs deletes only entries that are permanent, on our devices and for one address: those that
// the kernel learnt, and those for groups, are not ours.
func planFDBs(c *Changes, have, want []FDB, own Ownership) {
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
		if own.Sweep && !wanted[key{h.Link, h.MAC}] && h.Permanent && own.OwnsLink(h.Link) && !group(h.MAC) &&
			h.MAC != (MAC{}) {
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

// String is as iproute2 shows it.
func (n Neigh) String() string { return fmt.Sprintf("%v lladdr %v dev %s", n.Addr, n.MAC, n.Link) }

// String is as iproute2 shows it.
func (f FDB) String() string { return fmt.Sprintf("%v dst %v dev %s", f.MAC, f.Dst, f.Link) }
