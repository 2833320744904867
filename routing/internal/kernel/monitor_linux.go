package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/routing/internal/notify"
	"weft/tunnel/nlattr"
)

// Change is the set of things that notifications were about.
type Change uint8

const (
	ChangedObjects    Change = 1 << iota // our device, the underlay, or routes of our networks
	ChangedRoutes                        // how datagrams get to peers
	ChangedNeighbours                    // the link address of a neighbour that frames go to
	ChangedAll        = ChangedObjects | ChangedRoutes | ChangedNeighbours
)

// Interest says which notifications concern us. It is immutable once stored.
type Interest struct {
	// Own has the numbers of our devices, and Under that of the underlay's link: their state, their addresses
	// and the routes by them concern us. Names has the names of our devices, for one that appears.
	Own   map[int]bool
	Under int
	Names map[string]bool
	// Below has the numbers of the links that the underlay's stands on, whose features concern us.
	Below map[int]bool
	// Entries says that neighbours and forwarding entries on our devices concern us, and Filters that the
	// filters of traffic control on all these links do.
	Entries, Filters bool
	// Networks are the overlay's; the routes in them concern us.
	Networks []netip.Prefix
	// Hosts are addresses; the routes to them concern us.
	Hosts []netip.Addr
	Hops  HopInterest
}

// ours reports whether a link is one of our devices or the underlay.
func (i *Interest) ours(index int) bool { return index != 0 && (index == i.Under || i.Own[index]) }

// HopInterest says on what the next hops of the data plane's datagrams depend.
type HopInterest struct {
	Link   int          // the underlay's; 0 if there are no next hops
	Others map[int]bool // links that some peers are routed to instead
	Peers  []netip.Addr // sorted
	// MACs has the link addresses in use of the neighbours by which peers are reached; the zero MAC
	// stands for none yet.
	MACs map[netip.Addr]encap.MAC
	// Silent has the neighbours that the kernel asked for without an answer.
	Silent map[netip.Addr]bool
}

// Monitor is one subscription to the changes of links, addresses, routes and neighbours in a
// namespace.
type Monitor struct {
	*notify.Socket
	interest atomic.Pointer[Interest]
}

// Subscribe opens the subscription; the caller closes it.
func (k *Kernel) Subscribe() (*Monitor, error) {
	m := &Monitor{}
	m.interest.Store(&Interest{})
	err := k.Do(func() (err error) {
		m.Socket, err = notify.Open(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
			unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_NEIGH, unix.RTNLGRP_TC)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of links, addresses, routes and neighbours: %w", err)
	}
	return m, nil
}

// Watch replaces what the monitor looks for.
func (m *Monitor) Watch(i Interest) { m.interest.Store(&i) }

// Follow calls changed after messages that concern us, and after messages were lost. It returns after
// Close. changed must not block.
func (m *Monitor) Follow(changed func(Change)) error {
	return m.Run(func(msgs []syscall.NetlinkMessage) {
		if len(msgs) == 0 {
			changed(ChangedAll)
			return
		}
		i, c := m.interest.Load(), Change(0)
		for _, msg := range msgs {
			c |= i.Concerns(msg)
		}
		if c != 0 {
			changed(c)
		}
	})
}

// Concerns says which of the things that concern us a message is about.
func (i *Interest) Concerns(m syscall.NetlinkMessage) Change {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return 0
		}
		index := int(nl.DeserializeIfInfomsg(m.Data).Index)
		name := unix.ByteSliceToString(nlattr.Find(m.Data[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME))
		return when(i.ours(index) || i.Below[index] || i.Names[name], ChangedObjects) |
			when(i.Hops.Link == index && index != 0 || i.Hops.Others[index], ChangedRoutes)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(m.Data) < unix.SizeofIfAddrmsg {
			return 0
		}
		index := int(nl.DeserializeIfAddrmsg(m.Data).Index)
		return when(i.ours(index), ChangedObjects) | when(i.Hops.Link == index && index != 0, ChangedRoutes)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return when(i.concernsRoute(m.Data), ChangedObjects) | when(i.Hops.ConcernsRoute(m.Data), ChangedRoutes)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return when(i.Hops.Link != 0, ChangedRoutes) | when(len(i.Hosts) > 0, ChangedObjects)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return when(i.Entries && len(m.Data) >= unix.SizeofNdMsg && i.Own[secondWord(m.Data)], ChangedObjects) |
			when(i.Hops.ConcernsNeighbour(m), ChangedNeighbours)
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_DELCHAIN:
		return when(i.Filters && len(m.Data) >= 8 && i.ours(secondWord(m.Data)), ChangedObjects)
	}
	return 0
}

// secondWord returns the link's number in struct ndmsg of neighbour.h and in struct tcmsg of rtnetlink.h.
func secondWord(b []byte) int { return int(int32(nl.NativeEndian().Uint32(b[4:]))) }

func when(b bool, c Change) Change {
	if b {
		return c
	}
	return 0
}

// destination reads a message about a route. ok is false for one that the kernel made for a packet.
func destination(b []byte) (head *nl.RtMsg, to netip.Prefix, ok bool) {
	if len(b) < unix.SizeofRtMsg {
		return nil, to, false
	}
	head = nl.DeserializeRtMsg(b)
	dst := fromIP(nlattr.Find(b[unix.SizeofRtMsg:], unix.RTA_DST))
	if !dst.IsValid() { // the default route has no such attribute
		dst = netip.IPv4Unspecified()
		if head.Family == unix.AF_INET6 {
			dst = netip.IPv6Unspecified()
		}
	}
	to = netip.PrefixFrom(dst, int(head.Dst_len))
	return head, to, to.IsValid() && head.Flags&unix.RTM_F_CLONED == 0
}

// ConcernsRoute reports whether a route of any table may lead to a peer.
func (h *HopInterest) ConcernsRoute(b []byte) bool {
	if h.Link == 0 {
		return false
	}
	_, to, ok := destination(b)
	return ok && Covers(to, h.Peers)
}

// ConcernsNeighbour reports whether a neighbour that frames go to, or could go to, has become
// another. Most of these messages only say that one was confirmed.
func (h *HopInterest) ConcernsNeighbour(m syscall.NetlinkMessage) bool {
	if h.Link == 0 {
		return false
	}
	n, ok := ParseNeighbour(m.Data, h.Link)
	mac, wanted := h.MACs[n.Addr]
	if m.Header.Type == unix.RTM_DELNEIGH || !n.Usable() {
		n.MAC = encap.MAC{}
	}
	failed := m.Header.Type == unix.RTM_NEWNEIGH && n.State&NudFailed != 0 && !h.Silent[n.Addr]
	return ok && wanted && (n.MAC != mac || failed)
}

// concernsRoute reports whether a route leads to one of the hosts or, if it is in the main table, whether it
// leaves by a link of ours or lies in the overlay.
func (i *Interest) concernsRoute(b []byte) bool {
	head, to, ok := destination(b)
	if !ok || head.Table == unix.RT_TABLE_LOCAL {
		return false
	}
	if slices.ContainsFunc(i.Hosts, to.Contains) {
		return true
	}
	out := nlattr.Find(b[unix.SizeofRtMsg:], unix.RTA_OIF)
	return head.Table == unix.RT_TABLE_MAIN && (len(out) == 4 &&
		i.ours(int(int32(nl.NativeEndian().Uint32(out)))) ||
		slices.ContainsFunc(i.Networks, func(n netip.Prefix) bool { return n.Contains(to.Addr()) }))
}
