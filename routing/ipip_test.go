package routing

import (
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/tunnel/port"
)

func ipipPeer(n int) lease.Record {
	r := vxlanPeer(n)
	r.BackendType, r.BackendData, r.BackendV6Data, r.V6, r.PublicIPv6 = typeIPIP, nil, nil, netip.Prefix{},
		netip.Addr{}
	return r
}

// TestIPIPWant has what flannel's ipip has in the kernel: routes by the device to peers' own addresses, or by
// the link with DirectRouting.
func TestIPIPWant(t *testing.T) {
	other, none := ipipPeer(4), ipipPeer(5)
	other.BackendType, none.PublicIP = "vxlan", netip.Addr{}
	small := ipipPeer(6)
	small.Weft = &lease.Weft{MTU: 1300, Recv: []string{"probe"},
		Addrs: []netip.Addr{addr("192.0.2.66"), addr("2001:db8::66")}}
	s := vxlanSituation(ipipPeer(2), ipipPeer(3), other, none, small)
	s.mtu, s.outer = 1480, 1500
	s.set.Own.V6, s.set.Config.IPv6Network = netip.Prefix{}, netip.Prefix{}
	far := addr("192.0.2.3")
	s.hops = map[netip.Addr]kernel.Hop{}
	for _, a := range []string{"192.0.2.2", "192.0.2.6"} {
		s.hops[addr(a)] = kernel.Hop{Link: s.under.Name}
	}
	s.hops[far] = kernel.Hop{Link: s.under.Name, Gateway: addr("192.0.2.254")}
	routes := func(rs []kernel.Route) string {
		var b strings.Builder
		for _, r := range rs {
			b.WriteString(r.Dst.String() + " via " + r.Gateway.String() + " dev " + r.Link)
			if r.OnLink {
				b.WriteString(" onlink")
			}
			if r.MTU > 0 {
				b.WriteString(" mtu")
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	const tunnelled = "10.5.2.0/24 via 192.0.2.2 dev flannel.ipip onlink\n10.5.3.0/24 via 192.0.2.3 dev " +
		"flannel.ipip onlink\n10.5.6.0/24 via 192.0.2.6 dev flannel.ipip onlink mtu\n"
	d := new(ipip).want(s)
	if got := routes(d.Routes); got != tunnelled {
		t.Errorf("routes:\n%swant:\n%s", got, tunnelled)
	}
	if len(d.Devices) != 1 || d.Devices[0].MTU != 1480 || d.Devices[0].Local != addr("192.0.2.1") ||
		len(d.Addrs) != 1 || d.Addrs[0].Prefix.String() != "10.5.1.0/32" {
		t.Errorf("device %+v, %+v", d.Devices, d.Addrs)
	}
	if got := d.skipped(); len(got) != 2 || !strings.Contains(got[0].Reason, "backend") ||
		!strings.Contains(got[1].Reason, "no PublicIP") {
		t.Errorf("left out: %+v", got)
	}
	direct := &ipip{DirectRouting: true}
	const mixed = "10.5.2.0/24 via 192.0.2.2 dev eth0\n10.5.3.0/24 via 192.0.2.3 dev flannel.ipip " +
		"onlink\n10.5.6.0/24 via 192.0.2.6 dev eth0 mtu\n"
	if got := routes(direct.want(s).Routes); got != mixed {
		t.Errorf("routes:\n%swant:\n%s", got, mixed)
	}

	u := new(ipip).inUserSpace("", "").want(s)
	if len(u.Routes) > 0 || u.spec == nil || len(u.spec.Peers) != 3 || usedPeers(u.reached(true)) != 3 || len(u.Devices) > 0 ||
		len(u.spec.LeftOut) != 2 {
		t.Fatalf("in user space: %+v", u)
	}
	p := u.spec.Peers[2]
	if p.Addr != addr("192.0.2.6") || !p.Weft || p.MTU != 1300 || p.Recv&port.RecvProbe == 0 ||
		len(p.Sources) != 1 || p.Sources[0] != addr("192.0.2.66") {
		t.Errorf("%+v", p)
	}
	if u := direct.inUserSpace("", "").want(s); routes(u.Routes) !=
		"10.5.2.0/24 via 192.0.2.2 dev eth0\n10.5.6.0/24 via 192.0.2.6 dev eth0 mtu\n" || len(u.spec.Peers) != 3 {
		t.Errorf("in user space with DirectRouting: %+v", u.Routes)
	}
}
