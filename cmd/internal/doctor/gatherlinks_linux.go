package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/diagnose"
	"weft/routing"
	"weft/routing/underlay"
)

// mostPeers bounds for how many peers the kernel is asked for its way.
const mostPeers = 2000

// readLinks reads links, addresses, routes and rules.
func readLinks(f *Facts) Links {
	var out Links
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		out.Err = fmt.Errorf("open a netlink socket: %w", err)
		return out
	}
	defer h.Close()
	_ = h.SetSocketTimeout(2 * time.Second) // else it waits for ever, which the kernel does not make it do
	names, err := out.readDevices(h)
	out.Err = errors.Join(err, out.readRoutes(h, names))
	out.readRules(h)
	out.readSilent(h, names)
	out.chooseUnderlay(f)
	out.To = map[netip.Addr]RouteLookup{}
	until := time.Now().Add(Within / 10)
	for i, p := range f.peers() {
		if i >= mostPeers || time.Now().After(until) {
			break
		}
		for _, a := range []netip.Addr{p.PublicIP, inside(p)} {
			if a.IsValid() {
				out.To[a] = way(h, a, names)
			}
		}
	}
	return out
}

func (l *Links) readDevices(h *netlink.Handle) (names map[int]string, err error) {
	names = map[int]string{}
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return names, fmt.Errorf("list links: %w", err)
	}
	for _, x := range links {
		a := x.Attrs()
		names[a.Index] = a.Name
		link := Link{Index: a.Index, Name: a.Name, Alias: a.Alias, Kind: x.Type(), MTU: a.MTU,
			Up: a.RawFlags&unix.IFF_UP != 0, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, Master: a.MasterIndex}
		if v, ok := x.(*netlink.Vxlan); ok {
			link.UDPPort = v.Port
		}
		l.Links = append(l.Links, link)
	}
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return names, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		for i := range l.Links {
			if p := prefixOf(a.IPNet); l.Links[i].Index == a.LinkIndex && p.IsValid() &&
				!p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
				l.Links[i].Addrs = append(l.Links[i].Addrs, p)
			}
		}
	}
	return names, nil
}

// prefixOf returns the zero Prefix for nil.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	p, _ := netipx.FromStdIPNet(n)
	return p
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netipx.FromStdIP(ip)
	return a
}

func (l *Links) readRoutes(h *netlink.Handle, names map[int]string) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rs, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // no IPv6
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list routes: %w", err)
		}
		for _, r := range rs {
			one := Route{Dst: prefixOf(r.Dst), Gateway: addrOf(r.Gw), Link: names[r.LinkIndex], Metric: r.Priority,
				Protocol: int(r.Protocol)}
			switch r.Type {
			case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
				one.Blocks = true
			case unix.RTN_UNICAST:
			default:
				continue
			}
			if len(r.MultiPath) == 0 {
				l.Routes = append(l.Routes, one)
			}
			for _, hop := range r.MultiPath {
				one.Gateway, one.Link = addrOf(hop.Gw), names[hop.LinkIndex]
				l.Routes = append(l.Routes, one)
			}
		}
	}
	return nil
}

func (l *Links) readRules(h *netlink.Handle) {
	rs, _ := h.RuleList(netlink.FAMILY_ALL) // a kernel without policy routing has none
	for _, r := range rs {
		l.Rules = append(l.Rules, Rule{Priority: max(r.Priority, 0), Table: r.Table, To: prefixOf(r.Dst),
			Text: r.String(), Narrow: r.Src != nil || r.Mark != 0 || r.IifName != "" || r.OifName != "" ||
				r.Tos != 0 || r.IPProto != 0 || r.UIDRange != nil || r.Dport != nil || r.Sport != nil})
	}
}

func (l *Links) readSilent(h *netlink.Handle, names map[int]string) {
	l.Silent, l.Pinned = map[netip.Addr]string{}, map[netip.Addr]bool{}
	ns, err := h.NeighList(0, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return
	}
	for _, n := range ns {
		if n.State&netlink.NUD_FAILED != 0 {
			l.Silent[addrOf(n.IP)] = names[n.LinkIndex]
		}
		if n.State&netlink.NUD_PERMANENT != 0 {
			l.Pinned[addrOf(n.IP)] = true
		}
	}
}

// mostAsked bounds how many addresses the link is asked for.
const mostAsked = 32

// odd are the addresses whose owners the link is asked for: this host's own, and those of peers that do not
// answer, or whose next hop somebody set.
func (f *Facts) odd(l Links) (out []netip.Addr) {
	for _, a := range []netip.Addr{l.Underlay.Addr4, l.Underlay.Ext4} {
		if a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	silent := map[netip.Addr]bool{}
	for _, p := range f.Daemon.Peers.Peers {
		silent[diagnose.UnderlayOf(p)] = silentAt(p)
	}
	for _, p := range f.peers() {
		next := l.nextHop(p.PublicIP)
		_, failed := l.Silent[next]
		failed = failed || l.To[p.PublicIP].Err != nil
		if (failed || l.Pinned[next] || silent[p.PublicIP]) && len(out) < mostAsked {
			out = append(out, p.PublicIP)
		}
	}
	return out
}

// way asks the kernel where a packet to a goes.
func way(h *netlink.Handle, a netip.Addr, names map[int]string) RouteLookup {
	rs, err := h.RouteGet(net.IP(a.AsSlice()))
	if err != nil || len(rs) == 0 {
		return RouteLookup{Err: err}
	}
	return RouteLookup{Link: names[rs[0].LinkIndex], Gateway: addrOf(rs[0].Gw), MTU: rs[0].MTU}
}

// chooseUnderlay takes what the running weftd has, or chooses as it would.
func (l *Links) chooseUnderlay(f *Facts) {
	if d := f.Daemon; d.Answers() && !d.Elsewhere && d.Status.Underlay.Link != "" {
		u := d.Status.Underlay
		l.Underlay = underlay.Link{Name: u.Link, MTU: u.MTU, Addr4: u.Address, Addr6: u.IPv6Address,
			Ext4: u.PublicIP, Ext6: u.PublicIPv6}
		if x, ok := l.named(l.Underlay.Name); ok {
			l.Underlay.Index, l.Underlay.MTU = x.Index, x.MTU
		}
		return
	}
	k, err := routing.OpenKernel()
	if err != nil {
		l.UnderlayErr = err
		return
	}
	defer func() { _ = k.Close() }()
	u, n := f.Settings.Underlay, f.Network
	l.Underlay, l.UnderlayErr = underlay.Choose(k, underlay.Options{
		Interfaces: u.Ifaces, Regexes: u.Regexes, CanReach: u.CanReach, PublicIP: u.PublicIP,
		PublicIPv6: u.PublicIPv6, AllFamilies: true, Overlay: n.Networks(),
		// flannel has IPv4 by default, for a network that is not known
		IPv4: n.EnableIPv4 || !n.EnableIPv6, IPv6: n.EnableIPv6,
	})
}

// readPort finds who has the overlay's port, besides weftd.
func readPort(f *Facts) (p Port) {
	facts := f.Network.Facts()
	if !f.Network.known() || facts.Port == 0 {
		return p
	}
	proc, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		p.Err = err
		return p
	}
	sockets := map[string]Holder{} // as a descriptor of one is called
	for i, read := range []func() (procfs.NetUDP, error){proc.NetUDP, proc.NetUDP6} {
		all, err := read()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.Err = err
			return p
		}
		for _, x := range all {
			at := netip.AddrPortFrom(addrOf(x.LocalAddr), uint16(x.LocalPort))
			ours := at.Port() == facts.Port || i == 1 && facts.Port6 != 0 && at.Port() == facts.Port6
			if ours && (at.Addr().IsUnspecified() || slices.Contains(f.Links.Underlay.Local(), at.Addr())) {
				sockets[fmt.Sprintf("socket:[%d]", x.Inode)] = Holder{At: at}
			}
		}
	}
	delete(sockets, "socket:[0]") // the kernel's, of a vxlan device
	f.Daemon.nameOwners(sockets)
	for _, h := range sockets {
		if h.PID != 0 || f.Daemon.PID != 0 || !f.Daemon.Answers() { // else weftd is in another pid namespace
			p.Holders = append(p.Holders, h)
		}
	}
	p.leaveOut(f.Links.Links, facts.Port)
	return p
}

// leaveOut takes the sockets of the kernel's own devices out of the holders: they have no process.
func (p *Port) leaveOut(links []Link, port uint16) {
	for _, l := range links {
		ours := l.Alias == ownAlias || isFlannels(l.Name)
		switch {
		case l.Kind == "vxlan" && l.UDPPort == int(port):
		case ours && l.Kind == "wireguard": // the port is not among its attributes
		default:
			continue
		}
		p.Holders = slices.DeleteFunc(p.Holders, func(h Holder) bool { return h.PID == 0 })
		if !ours {
			p.Device = l.Name
		}
	}
}

// nameOwners finds the processes that have the sockets open, and takes out those that weftd has, too, or that
// are kept for it.
func (d Daemon) nameOwners(sockets map[string]Holder) {
	all, _ := procfs.AllProcs() // without them no socket has an owner
	until := time.Now().Add(Within / 10)
	for _, p := range all {
		if len(sockets) == 0 || time.Now().After(until) {
			return
		}
		open, _ := p.FileDescriptorTargets() // it ended, or is another user's
		for _, to := range open {
			if h, wanted := sockets[to]; wanted {
				name, _ := p.Comm() // it has ended
				sockets[to] = Holder{PID: p.PID, Name: name, At: h.At}
				if d.has(p.PID, name) {
					delete(sockets, to)
				}
			}
		}
	}
}
