package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Place says what State lists.
type Place struct {
	// Devices are ours.
	Devices []string
	// Underlay is the link whose routes matter too; "" for none.
	Underlay string
	// Neighs and Fdbs say that neighbours and forwarding entries on the devices matter.
	Neighs, Fdbs bool
}

// State lists what a plan needs: our devices, their addresses, neighbours and forwarding entries, and the
// routes by them, by the underlay, or with our protocol number. A link that does not exist has nothing.
func (k *Kernel) State(at Place) (State, error) {
	var s State
	own := map[int]string{}
	for _, name := range at.Devices {
		d, err := k.Device(name)
		if errors.Is(err, ErrNoLink) {
			continue
		}
		if err != nil {
			return s, err
		}
		own[d.Index] = name
		s.Devices = append(s.Devices, d)
	}
	from := s.Devices
	if at.Underlay != "" {
		d, err := k.Device(at.Underlay)
		if errors.Is(err, ErrNoLink) {
			d, err = Device{Name: at.Underlay, Index: -1}, nil // for the routes with our mark
		}
		if err != nil {
			return s, err
		}
		from = append([]Device{d}, from...)
	}
	var err error
	if s.Routes, err = k.routes(from); err != nil || len(own) == 0 {
		return s, err
	}
	as, err := k.addrs()
	if err != nil {
		return s, err
	}
	for _, a := range as {
		if name := own[a.LinkIndex]; name != "" && a.IPNet != nil {
			s.Addrs = append(s.Addrs, Addr{Link: name, Prefix: fromIPNet(a.IPNet)})
		}
	}
	if at.Neighs {
		if s.Neighs, err = k.neighs(own); err != nil {
			return s, err
		}
	}
	if at.Fdbs {
		s.FDBs, err = k.fdbs(own)
	}
	return s, err
}

// neighs lists the neighbours on those links.
func (k *Kernel) neighs(links map[int]string) ([]Neigh, error) {
	var out []Neigh
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		l, err := k.listNeighs(family, 0, 0)
		if err != nil {
			return nil, err
		}
		for _, n := range l {
			if links[n.LinkIndex] == "" {
				continue
			}
			e := Neigh{Link: links[n.LinkIndex], Addr: fromIP(n.IP), Permanent: n.State == netlink.NUD_PERMANENT}
			copy(e.MAC[:], n.HardwareAddr)
			out = append(out, e)
		}
	}
	return out, nil
}

// fdbs lists the forwarding entries of those vxlan devices, without those that another control
// plane marks as its own.
func (k *Kernel) fdbs(links map[int]string) ([]FDB, error) {
	l, err := k.listNeighs(unix.AF_BRIDGE, 0, 0)
	var out []FDB
	for _, n := range l {
		if links[n.LinkIndex] == "" || n.Flags&netlink.NTF_SELF == 0 || n.Flags&netlink.NTF_EXT_LEARNED != 0 ||
			len(n.HardwareAddr) != len(MAC{}) {
			continue
		}
		out = append(out, FDB{Link: links[n.LinkIndex], MAC: MAC(n.HardwareAddr), Dst: fromIP(n.IP),
			Permanent: n.State&netlink.NUD_PERMANENT != 0})
	}
	return out, err
}

// listNeighs lists the entries of a family on a link, or with 0 on all. The only flag that the kernel takes
// is NTF_PROXY, for proxy entries instead of neighbours.
func (k *Kernel) listNeighs(family, link int, flag uint8) ([]netlink.Neigh, error) {
	ns, err := dump(func() ([]netlink.Neigh, error) {
		return k.lax.NeighListExecute(netlink.Ndmsg{Family: uint8(family), Index: uint32(link), Flags: flag})
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // without IPv6
		return nil, nil
	}
	return ns, Wrap("list neighbours", err)
}

// SetNeigh adds an entry or puts it in the place of the one for the same address.
func (k *Kernel) SetNeigh(n Neigh) error { return k.changeNeigh(n, k.h.NeighSet) }

// DelNeigh deletes an entry; one that is gone already is no error.
func (k *Kernel) DelNeigh(n Neigh) error { return gone(k.changeNeigh(n, k.h.NeighDel)) }

// SetFDB adds an entry or puts it in the place of the one for the same MAC.
func (k *Kernel) SetFDB(f FDB) error { return k.changeFDB(f, k.h.NeighSet) }

// DelFDB deletes an entry; one that is gone already is no error.
func (k *Kernel) DelFDB(f FDB) error { return gone(k.changeFDB(f, k.h.NeighDel)) }

func (k *Kernel) changeNeigh(n Neigh, change func(*netlink.Neigh) error) error {
	return k.changeEntry(n.Link, netlink.Neigh{IP: n.Addr.AsSlice(), HardwareAddr: hardware(n.MAC)}, change)
}

func (k *Kernel) changeFDB(f FDB, change func(*netlink.Neigh) error) error {
	return k.changeEntry(f.Link, netlink.Neigh{Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
		IP: f.Dst.AsSlice(), HardwareAddr: hardware(f.MAC)}, change)
}

func (k *Kernel) changeEntry(link string, n netlink.Neigh, change func(*netlink.Neigh) error) error {
	l, err := k.h.LinkByName(link)
	if err != nil {
		return err
	}
	n.LinkIndex, n.State = l.Attrs().Index, netlink.NUD_PERMANENT
	return change(&n)
}

func hardware(m MAC) net.HardwareAddr { return m[:] }

func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Hop says how the kernel would send to an address now. It is comparable.
type Hop struct {
	Link    string
	Gateway netip.Addr // the zero Addr if the address is on the link itself
	err     error
}

// NextHops asks the kernel how it would send to each address; its answer follows policy rules too.
func (k *Kernel) NextHops(addrs []netip.Addr) (map[netip.Addr]Hop, error) {
	ds, err := k.Devices()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(ds))
	for _, d := range ds {
		names[d.Index] = d.Name
	}
	answers, err := k.RoutesTo(addrs, netip.AddrPort{})
	if err != nil {
		return nil, err
	}
	out := make(map[netip.Addr]Hop, len(addrs))
	for i, a := range answers {
		switch hop := (Hop{Link: names[a.Link], Gateway: a.Gateway}); {
		case errors.Is(a.Err, ErrNoAnswer): // which says nothing about the way
			return nil, fmt.Errorf("the way to %v: %w", addrs[i], a.Err)
		case a.Err != nil:
			out[addrs[i]] = Hop{err: a.Err}
		case a.Kind != unix.RTN_UNICAST:
			out[addrs[i]] = Hop{err: unix.EHOSTUNREACH}
		default:
			out[addrs[i]] = hop
		}
	}
	return out, nil
}

// Indirect says why a peer cannot be reached by a plain route on link; "" if it can.
func (h Hop) Indirect(a netip.Addr, link string) string {
	switch {
	case h.err != nil:
		return fmt.Sprintf("there is no way to %v: %v", a, h.err)
	case h.Gateway.IsValid():
		return fmt.Sprintf("%v is reached through the router %v on %s, not directly", a, h.Gateway, h.Link)
	case h.Link != link:
		return fmt.Sprintf("%v is reached on %s, and the underlay is %s", a, h.Link, link)
	}
	return ""
}

// Ask makes the kernel resolve a neighbour on a link, as a packet to it would.
func (k *Kernel) Ask(link int, neighbour netip.Addr) error {
	return k.h.NeighSet(&netlink.Neigh{LinkIndex: link, IP: neighbour.AsSlice(), Flags: netlink.NTF_USE})
}
