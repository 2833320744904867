package routing

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/routing/internal/notify"
)

// watchlist is what a kernelBackend keeps or depends on. It is immutable once stored.
type watchlist struct {
	// own are our devices: all that happens on them concerns us.
	own map[int]bool
	// under is the underlay link: its state, its addresses, and the routes by it.
	under int
	names map[string]bool // of these and of ours, for one that appears
	// networks are the overlay's: routes in them.
	networks []netip.Prefix
	// hosts are addresses the way to which concerns us.
	hosts []netip.Addr
}

// watcher is one subscription to the changes of links, addresses, routes, neighbours and
// forwarding entries in a namespace.
type watcher struct {
	*notify.Socket
	list atomic.Pointer[watchlist]
}

// watcher opens the subscription; the caller closes it.
func (k *Kernel) watcher() (*watcher, error) {
	w := &watcher{}
	w.list.Store(&watchlist{})
	err := k.do(func() (err error) {
		w.Socket, err = notify.Open(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
			unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of links, addresses, routes and neighbours: %w", err)
	}
	return w, nil
}

// watch replaces what to look for.
func (w *watcher) watch(l watchlist) { w.list.Store(&l) }

// run calls changed after messages that concern us, and when messages were lost, until Close.
// changed must not block.
func (w *watcher) run(changed func()) error {
	return w.Run(func(msgs []syscall.NetlinkMessage) {
		if len(msgs) == 0 || slices.ContainsFunc(msgs, w.list.Load().concerns) {
			changed()
		}
	})
}

// concerns reports whether a message is about what is on the list.
func (l *watchlist) concerns(m syscall.NetlinkMessage) bool {
	ours := func(index int) bool { return index != 0 && (index == l.under || l.own[index]) }
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(m.Data) >= unix.SizeofIfInfomsg && (ours(int(nl.DeserializeIfInfomsg(m.Data).Index)) ||
			l.names[string(attribute(m.Data[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME))])
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(m.Data) >= unix.SizeofIfAddrmsg && ours(int(nl.DeserializeIfAddrmsg(m.Data).Index))
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// struct ndmsg of neighbour.h: the index is the second word.
		return len(m.Data) >= unix.SizeofNdMsg && l.own[int(int32(nl.NativeEndian().Uint32(m.Data[4:])))]
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return len(l.hosts) > 0
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return l.concernsRoute(m.Data, ours)
	}
	return false
}

func (l *watchlist) concernsRoute(b []byte, ours func(int) bool) bool {
	if len(b) < unix.SizeofRtMsg {
		return false
	}
	head, attrs := nl.DeserializeRtMsg(b), b[unix.SizeofRtMsg:]
	if head.Flags&unix.RTM_F_CLONED != 0 || head.Table == unix.RT_TABLE_LOCAL {
		return false
	}
	if leads(head, attrs, l.hosts) {
		return true
	}
	if head.Table != unix.RT_TABLE_MAIN {
		return false
	}
	dst := fromIP(attribute(attrs, unix.RTA_DST))
	out := attribute(attrs, unix.RTA_OIF)
	return len(out) == 4 && ours(int(int32(nl.NativeEndian().Uint32(out)))) ||
		slices.ContainsFunc(l.networks, func(n netip.Prefix) bool { return n.Contains(dst) })
}

// leads reports whether a route is one to any of those addresses.
func leads(head *nl.RtMsg, attrs []byte, hosts []netip.Addr) bool {
	dst := fromIP(attribute(attrs, unix.RTA_DST))
	if !dst.IsValid() { // the default route has no such attribute
		dst = netip.IPv4Unspecified()
		if head.Family == unix.AF_INET6 {
			dst = netip.IPv6Unspecified()
		}
	}
	return slices.ContainsFunc(hosts, netip.PrefixFrom(dst, int(head.Dst_len)).Contains)
}
