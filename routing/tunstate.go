package routing

import (
	"net/netip"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// gateway6 is the gateway of the route to the IPv6 network by the TUN. Nobody has this address. But without a
// gateway the kernel makes a neighbour entry for every destination, on a TUN too, and it has room for 1,024
// entries that are not permanent (net.ipv6.neigh.default.gc_thresh3), for all devices and namespaces of the
// host together. When they are full, a packet to another pod fails with EINVAL. IPv4 needs no gateway on a
// point-to-point link.
var gateway6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})

// txQueueLen is how many packets the TUN's queue holds before the kernel drops the
// next one at its tail. Past the TUN the sender's TCP has no back-pressure, so one bulk
// stream fills whatever is there, and every other flow waits behind it; too short, and a
// burst of small packets is lost before the worker is on the CPU. On path portable 1000
// packets of 1472 bytes are drained in 6 to 12 ms at the 1 to 2 Gb/s of that path. On path
// socket, of 64-byte datagrams delivered with less than 0.5 % loss, 128 gave 1.1 times what
// the kernel's vxlan did in the same run, 500 gave 1.4, and 2000 gave 1.5. One bulk
// stream cannot fill it with superpackets: 64 of them are all that tcp_wmem's 4 MB allow.
//
// It is also what waits while one weftd follows another (docs/operations.md): a second's worth at a thousand
// packets a second.
const txQueueLen = 1000

// tunState returns what the kernel is to have on the data plane's TUN for our lease.
func tunState(name string, mtu int, own lease.Subnets, c lease.NetworkConfig) kernel.State {
	s := kernel.State{Devices: []kernel.Device{
		{Name: name, Alias: kernel.Alias, MTU: mtu, TxQueueLen: txQueueLen, Up: true},
	}}
	for _, f := range []struct{ subnet, network netip.Prefix }{{own.V4, c.Network}, {own.V6, c.IPv6Network}} {
		if !f.subnet.IsValid() || !f.network.IsValid() {
			continue
		}
		base := f.subnet.Masked().Addr()
		s.Addrs = append(s.Addrs, kernel.Addr{Link: name, Prefix: netip.PrefixFrom(base, base.BitLen())})
		r := tunRoute(f.network.Masked(), name, 0)
		s.Routes = append(s.Routes, r)
		if r.Gateway.IsValid() { // for good, so that none is ever to be made; a TUN has no link addresses
			s.Neighs = append(s.Neighs, kernel.Neigh{Link: name, Addr: r.Gateway, Permanent: true})
		}
	}
	return s
}

// tunRoute is a route by a TUN, or by another device that leads to nobody in particular.
func tunRoute(to netip.Prefix, device string, mtu int) kernel.Route {
	r := kernel.Route{Dst: to, Link: device, Scope: kernel.ScopeLink, Protocol: kernel.RouteProtocol, MTU: mtu}
	if to.Addr().Is6() {
		r.Scope, r.Metric, r.Gateway = kernel.ScopeUniverse, kernel.DefaultMetric6, gateway6
	}
	return r
}
