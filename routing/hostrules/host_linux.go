package hostrules

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"weft/lease"
)

// hostNotes checks the settings without which packets do not pass. A missing setting is reported and not
// changed, since the operator may want it so.
func hostNotes(c Config) []string {
	var notes []string
	setting := func(file, meaning, remedy string) {
		b, err := os.ReadFile(filepath.Join("/proc/sys/net", file))
		key := "net." + strings.ReplaceAll(file, "/", ".")
		switch {
		case errors.Is(err, fs.ErrNotExist):
			notes = append(notes, fmt.Sprintf("%s does not exist: %s; %s", key, meaning, remedy))
		case err == nil && strings.TrimSpace(string(b)) == "0":
			notes = append(notes, fmt.Sprintf("%s is 0: %s; sysctl -w %s=1", key, meaning, key))
		}
	}
	const (
		noForward = "the kernel forwards nothing between pods and other hosts"
		noBridge  = "packets between pods on one bridge miss iptables, which matters where kube-proxy uses it"
		loadIt    = "modprobe br_netfilter"
	)
	bridge := !c.Network.EnableNFTables // as flannel has it
	if c.Network.EnableIPv4 {
		setting("ipv4/ip_forward", noForward, "the kernel has no IPv4")
		if bridge {
			setting("bridge/bridge-nf-call-iptables", noBridge, loadIt)
		}
	}
	if c.Network.EnableIPv6 {
		setting("ipv6/conf/all/forwarding", noForward, "the kernel has no IPv6")
		if bridge {
			setting("bridge/bridge-nf-call-ip6tables", noBridge, loadIt)
		}
	}
	return notes
}

// guard returns the backend's Guard, without the check of peers if somebody else's vxlan shares the port,
// whose peers are not ours. mu is held.
func (r *Rules) guard(links []netlink.Link) (Guard, []string) {
	g := *r.protects.Load()
	if g.Port == 0 {
		return g, nil
	}
	for _, l := range links {
		v, ok := l.(*netlink.Vxlan)
		if ok && v.Port == int(g.Port) && v.Attrs().Alias != ownAlias &&
			!strings.HasPrefix(v.Attrs().Name, "flannel") {
			g.Peers, g.Underlay = false, "" // its datagrams may come in by any link
			return g, []string{fmt.Sprintf("link %s uses UDP port %d too, with senders of its own: datagrams from "+
				"strangers, and from pods with others' addresses, are not dropped; give one of them another port",
				v.Attrs().Name, g.Port)}
		}
	}
	return g, nil
}

// blackholeMetric is so high that any other route to the subnet wins: the route of the pods'
// bridge has the same prefix, and with the same metric the kernel would add it behind ours.
const blackholeMetric = 1<<31 - 2

// syncBlackhole makes our blackhole routes those of the subnets, or removes them. Without
// one, a packet for an address that no pod has would leave by the default route, and might
// circle between this host and a router that sends it back.
func syncBlackhole(c Config, own lease.Subnets) error {
	want := map[netip.Prefix]bool{}
	if c.Blackhole {
		for _, p := range []netip.Prefix{own.V4, own.V6} {
			if p.IsValid() {
				want[p] = true
			}
		}
	}
	var faults []error
	have, err := blackholes(c.RouteProtocol)
	if err != nil {
		return err
	}
	for p := range want {
		if !slices.ContainsFunc(have, func(r netlink.Route) bool { return routePrefix(r) == p }) {
			if err := netlink.RouteReplace(blackhole(p, c.RouteProtocol)); err != nil {
				faults = append(faults, fmt.Errorf("blackhole route %v: %w", p, err))
			}
		}
	}
	mine := scopeOf(c.Network, c.Former)
	for _, r := range have {
		if p := routePrefix(r); !want[p] && mine.has(p) {
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				faults = append(faults, fmt.Errorf("delete blackhole route %v: %w", routePrefix(r), err))
			}
		}
	}
	return errors.Join(faults...)
}

func blackhole(p netip.Prefix, protocol int) *netlink.Route {
	r := &netlink.Route{Dst: netipx.PrefixIPNet(p), Type: unix.RTN_BLACKHOLE, Priority: blackholeMetric,
		Protocol: netlink.RouteProtocol(protocol), Table: unix.RT_TABLE_MAIN}
	if p.Addr().Is6() {
		r.Family = netlink.FAMILY_V6
	} else {
		r.Family = netlink.FAMILY_V4
	}
	return r
}

// IsBlackhole reports whether r, of our protocol, is a blackhole as syncBlackhole makes them, with a metric
// that nobody else has a use for.
func IsBlackhole(r netlink.Route) bool {
	return r.Type == unix.RTN_BLACKHOLE && r.Priority == blackholeMetric
}

// blackholes lists the blackhole routes of our protocol in the main table.
func blackholes(protocol int) ([]netlink.Route, error) {
	var out []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rs, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: netlink.RouteProtocol(protocol),
			Type: unix.RTN_BLACKHOLE},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without IPv6
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list blackhole routes: %w", err)
		}
		out = append(out, rs...)
	}
	return out, nil
}

// routePrefix returns a route's destination, the zero Prefix for a default route.
func routePrefix(r netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}
