package routing

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

// change is a set of what notifications were about.
type change uint8

const (
	changedObjects    change = 1 << iota // our device, the underlay, or routes of our networks
	changedRoutes                        // how datagrams get to peers
	changedNeighbours                    // the link address of a neighbour that frames go to
	changedAll        = changedObjects | changedRoutes | changedNeighbours
)

// interest says which notifications concern us. It is immutable once stored.
type interest struct {
	// own are the numbers of our devices, under is the underlay link's: their state, their addresses, and
	// the routes by them. Names are theirs, for one that appears.
	own   map[int]bool
	under int
	names map[string]bool
	// entries says that neighbours and forwarding entries on our devices concern us, filters that
	// traffic control on all these links does.
	entries, filters bool
	// networks are the overlay's: the routes in them.
	networks []netip.Prefix
	// hosts are addresses the route to which concerns us.
	hosts []netip.Addr
	hops  hopInterest
}

// ours reports whether a link is one of our devices or the underlay.
func (i *interest) ours(index int) bool { return index != 0 && (index == i.under || i.own[index]) }

// hopInterest is what next hops depend on.
type hopInterest struct {
	link   int          // the underlay's; 0 if there are no next hops
	others map[int]bool // links that some peers are routed to instead
	peers  []netip.Addr // sorted
	// macs are the link addresses in use of the neighbours that peers are reached by; none yet
	// is the zero MAC.
	macs map[netip.Addr]encap.MAC
	// silent are those that the kernel asked for in vain.
	silent map[netip.Addr]bool
}

// monitor is one subscription to the changes of links, addresses, routes and neighbours in a
// namespace.
type monitor struct {
	*notify.Socket
	interest atomic.Pointer[interest]
}

// subscribe opens the subscription; the caller closes it.
func (k *Kernel) subscribe() (*monitor, error) {
	m := &monitor{}
	m.interest.Store(&interest{})
	err := k.do(func() (err error) {
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

// watch replaces what the monitor looks for.
func (m *monitor) watch(i interest) { m.interest.Store(&i) }

// follow calls changed after messages that concern us, and when messages were lost, until Close.
// changed must not block.
func (m *monitor) follow(changed func(change)) error {
	return m.Run(func(msgs []syscall.NetlinkMessage) {
		if len(msgs) == 0 {
			changed(changedAll)
			return
		}
		i, c := m.interest.Load(), change(0)
		for _, msg := range msgs {
			c |= i.concerns(msg)
		}
		if c != 0 {
			changed(c)
		}
	})
}

// concerns says what of ours a message is about.
func (i *interest) concerns(m syscall.NetlinkMessage) change {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return 0
		}
		index := int(nl.DeserializeIfInfomsg(m.Data).Index)
		return when(i.ours(index) || i.names[unix.ByteSliceToString(nlattr.Find(m.Data[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME))], changedObjects) |
			when(i.hops.link == index && index != 0 || i.hops.others[index], changedRoutes)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(m.Data) < unix.SizeofIfAddrmsg {
			return 0
		}
		index := int(nl.DeserializeIfAddrmsg(m.Data).Index)
		return when(i.ours(index), changedObjects) | when(i.hops.link == index && index != 0, changedRoutes)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return when(i.concernsRoute(m.Data), changedObjects) | when(i.hops.concernsRoute(m.Data), changedRoutes)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return when(i.hops.link != 0, changedRoutes) | when(len(i.hosts) > 0, changedObjects)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return when(i.entries && len(m.Data) >= unix.SizeofNdMsg && i.own[secondWord(m.Data)], changedObjects) |
			when(i.hops.concernsNeighbour(m), changedNeighbours)
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_DELCHAIN:
		return when(i.filters && len(m.Data) >= 8 && i.ours(secondWord(m.Data)), changedObjects)
	}
	return 0
}

// secondWord is where struct ndmsg of neighbour.h and struct tcmsg of rtnetlink.h have the link's number.
func secondWord(b []byte) int { return int(int32(nl.NativeEndian().Uint32(b[4:]))) }

func when(b bool, c change) change {
	if b {
		return c
	}
	return 0
}

// concernsRoute reports whether a route of any table may lead to a peer.
func (h *hopInterest) concernsRoute(b []byte) bool {
	if h.link == 0 || len(b) < unix.SizeofRtMsg {
		return false
	}
	head, dst := nl.DeserializeRtMsg(b), netip.IPv4Unspecified()
	if head.Family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	if v := nlattr.Find(b[unix.SizeofRtMsg:], unix.RTA_DST); v != nil {
		dst = fromIP(v)
	}
	p, err := dst.Prefix(int(head.Dst_len))
	return err == nil && head.Flags&unix.RTM_F_CLONED == 0 && covers(p, h.peers)
}

// concernsNeighbour reports whether a neighbour that frames go to, or could go to, has become
// another. Most of these messages only say that one was confirmed.
func (h *hopInterest) concernsNeighbour(m syscall.NetlinkMessage) bool {
	if h.link == 0 {
		return false
	}
	n, ok := parseNeighbour(m.Data, h.link)
	mac, wanted := h.macs[n.addr]
	if m.Header.Type == unix.RTM_DELNEIGH || !n.usable() {
		n.mac = encap.MAC{}
	}
	failed := m.Header.Type == unix.RTM_NEWNEIGH && n.state&nudFailed != 0 && !h.silent[n.addr]
	return ok && wanted && (n.mac != mac || failed)
}

// concernsRoute reports whether a route leads to one of the hosts, or in the main table leaves by a link of
// ours or lies in the overlay.
func (i *interest) concernsRoute(b []byte) bool {
	if len(b) < unix.SizeofRtMsg {
		return false
	}
	head, attrs := nl.DeserializeRtMsg(b), b[unix.SizeofRtMsg:]
	if head.Flags&unix.RTM_F_CLONED != 0 || head.Table == unix.RT_TABLE_LOCAL {
		return false
	}
	if len(i.hosts) > 0 && leads(head, attrs, i.hosts) {
		return true
	}
	if head.Table != unix.RT_TABLE_MAIN {
		return false
	}
	dst, out := fromIP(nlattr.Find(attrs, unix.RTA_DST)), nlattr.Find(attrs, unix.RTA_OIF)
	return len(out) == 4 && i.ours(int(int32(nl.NativeEndian().Uint32(out)))) ||
		slices.ContainsFunc(i.networks, func(n netip.Prefix) bool { return n.Contains(dst) })
}

// leads reports whether a route is one to any of those addresses.
func leads(head *nl.RtMsg, attrs []byte, hosts []netip.Addr) bool {
	dst := fromIP(nlattr.Find(attrs, unix.RTA_DST))
	if !dst.IsValid() { // the default route has no such attribute
		dst = netip.IPv4Unspecified()
		if head.Family == unix.AF_INET6 {
			dst = netip.IPv6Unspecified()
		}
	}
	return slices.ContainsFunc(hosts, netip.PrefixFrom(dst, int(head.Dst_len)).Contains)
}
