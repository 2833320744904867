package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// gateway6 is where the IPv6 network is said to lie behind on the TUN. There is nobody. But without a
// gateway the kernel makes a neighbour of every destination, on a TUN too, and has room for 1,024 of those that are
// not permanent (net.ipv6.neigh.default.gc_thresh3), for all devices and namespaces of the host together. When they are full
// a packet to another pod fails with EINVAL. For IPv4 it takes a TUN for the point-to-point link that it is.
var gateway6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})

// txQueueLen is how many packets the TUN's queue holds before the kernel drops the
// next one at its tail. Past the TUN the sender's TCP has no back-pressure, so one bulk
// stream fills whatever is there, and every other flow waits behind it; too short, and a
// burst of small packets is lost before the worker is on the CPU. On path portable 500
// packets of 1472 bytes are drained in 3 to 6 ms at the 1 to 2 Gb/s of that path. On path
// socket, of 64-byte datagrams delivered with less than 0.5 % loss, 128 gave 1.1 times what
// the kernel's vxlan did in the same run, 500 gave 1.4, and 2000 gave 1.5. One bulk
// stream cannot fill 500 slots with superpackets: 64 of them are all that tcp_wmem's 4 MB allow.
const txQueueLen = 500

// wantState is what the kernel shall have for our lease on the device.
func wantState(name string, mtu int, own lease.Subnets, c lease.NetworkConfig) kernel.State {
	s := kernel.State{Links: []kernel.Link{{Name: name, Alias: kernel.Alias, MTU: mtu, TxQueueLen: txQueueLen, Up: true}}}
	for _, f := range []struct {
		subnet, network netip.Prefix
		route           kernel.Route
	}{
		{own.V4, c.Network, kernel.Route{Scope: kernel.ScopeLink}},
		{own.V6, c.IPv6Network, kernel.Route{Gateway: gateway6, Scope: kernel.ScopeUniverse, Metric: kernel.DefaultMetric6}},
	} {
		if !f.subnet.IsValid() || !f.network.IsValid() {
			continue
		}
		base := f.subnet.Masked().Addr()
		s.Addrs = append(s.Addrs, kernel.Addr{Link: name, Prefix: netip.PrefixFrom(base, base.BitLen())})
		r := f.route
		r.Dst, r.Link, r.Protocol = f.network.Masked(), name, kernel.RouteProtocol
		s.Routes = append(s.Routes, r)
		if r.Gateway.IsValid() { // for good, so that none is ever to be made; a TUN has no link addresses
			s.Neighs = append(s.Neighs, kernel.Neigh{Link: name, Addr: r.Gateway, Permanent: true})
		}
	}
	return s
}

// pickDevice chooses the TUN's name among the links that there are. A TUN with
// an address in our network is ours from before, or flannel's (then it is adopted); one that has
// our alias and no address yet was left by a crash; else the first free name is for a new
// one. inUse are names that another process turned out to hold.
func pickDevice(ds []kernel.Device, addrs map[int][]netip.Addr, nets []netip.Prefix, inUse map[string]bool) string {
	var bare string
	there := make(map[string]bool, len(ds))
	ds = slices.Clone(ds)
	slices.SortFunc(ds, func(a, b kernel.Device) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	for _, d := range ds {
		there[d.Name] = true
		if !kernel.IsTUNName(d.Name) {
			continue
		}
		if inUse[d.Name] || !d.TUN || d.Alias != kernel.Alias && d.Alias != "" {
			continue
		}
		as := addrs[d.Index]
		inside := slices.ContainsFunc(as, func(a netip.Addr) bool {
			return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(a) })
		})
		if inside {
			return d.Name
		}
		lone := !slices.ContainsFunc(as, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() })
		if bare == "" && lone && d.Alias == kernel.Alias {
			bare = d.Name
		}
	}
	if bare != "" {
		return bare
	}
	for n := 0; ; n++ {
		if name := fmt.Sprint(kernel.TUNPrefix, n); !there[name] && !inUse[name] {
			return name
		}
	}
}

// refreshed is the underlay as it is now: chosen at the start, then u, on the link as
// l shows it. The chosen address is kept or returned to while the link has it; when
// it is gone and replace is set, the link's next best takes its place, and is advertised if
// the old one was. lost says what is missing, empty for nothing.
func (u Underlay) refreshed(chosen Underlay, l listing, o UnderlayOptions, replace bool) (now Underlay, lost string) {
	i := slices.IndexFunc(l.links, func(k linkInfo) bool { return k.name == chosen.Link })
	if i < 0 {
		return u, fmt.Sprintf("link %s is gone", chosen.Link)
	}
	link := l.links[i]
	now = u
	now.Index, now.MTU = link.index, link.mtu
	var missing []string
	for _, f := range []struct {
		on, six                   bool
		chosen, chosenExt, public netip.Addr
		addr, ext                 *netip.Addr
	}{
		{o.IPv4, false, chosen.Addr4, chosen.Ext4, o.PublicIP, &now.Addr4, &now.Ext4},
		{o.IPv6, true, chosen.Addr6, chosen.Ext6, o.PublicIPv6, &now.Addr6, &now.Ext6},
	} {
		if !f.on && !f.chosen.IsValid() {
			continue
		}
		next, _ := l.pick(candidate{index: link.index, addr: f.chosen}, f.six, o)
		has := func(a netip.Addr) bool {
			return slices.ContainsFunc(l.addrs, func(k kernel.AddrInfo) bool { return k.Index == link.index && k.Addr == a && !k.Failed })
		}
		switch {
		case f.chosen.IsValid() && has(f.chosen):
			*f.addr, *f.ext = f.chosen, f.chosenExt
		case f.addr.IsValid() && has(*f.addr):
		case next.IsValid() && (replace || !f.addr.IsValid()):
			if *f.addr = next; !f.public.IsValid() {
				*f.ext = next
			} else {
				*f.ext = f.public
			}
		case f.addr.IsValid():
			missing = append(missing, fmt.Sprintf("link %s has no address %v", link.name, *f.addr))
		}
	}
	if !link.up {
		missing = append(missing, fmt.Sprintf("link %s is down", link.name))
	}
	return now, strings.Join(missing, "; ")
}

// outer6 reports whether datagrams to most peers have an IPv6 header.
func (u Underlay) outer6() bool { return !u.Addr4.IsValid() }
