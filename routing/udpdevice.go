package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

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
