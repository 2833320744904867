package routing

import (
	"weft/encap"
	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel/port"
)

// typeUDP is flannel's udp: this program carries inner packets, bare in UDP.
const typeUDP = lease.DefaultBackend

func udpType() Type {
	return Type{
		Name: typeUDP, Settings: func(c lease.NetworkConfig, _ func(string) bool) settings {
			return &udp{ipv6: c.EnableIPv6}
		},
		Device: isTUN, // flannel's are gone with it: one without our mark is in use
	}
}

// isTUN reports whether d has the name and the kind of the data plane's TUN.
func isTUN(d kernel.Device) bool { return d.Kind == kernel.KindTUN && kernel.IsTUNName(d.Name) }

// udp is flannel's udp: inner packets bare in UDP, one route for all peers.
type udp struct {
	// Port is every node's UDP port.
	Port uint16 `default:"8285" range:"1..65535" shared:"port"`
	dataPlane
	senders
	// MTU is the largest datagram with its IP header, in bytes, as flannel's key MTU is for vxlan; 0 for that of
	// the underlay link. A value above the link's has no effect.
	MTU  int  `range:"576..65535" range6:"1308..65535"`
	ipv6 bool // the network has it
}

// Facts has no record, since flannel's writes no BackendType.
func (b *udp) Facts() Facts {
	return Facts{Carrier: CarrierWeft, Port: b.Port, Guard: hostrules.Guard{Port: b.Port}, uniform: true,
		plane: b.options(encap.FormatIP, b.Port), recv: port.Supported}
}

func (b *udp) sizes(u underlay.Link) (mtus, error) {
	outer, least := outerMTU(u.MTU, b.MTU), minMTU4-encap.FormatIP.Overhead(u.Outer6())
	if b.ipv6 {
		least = minMTU6
	}
	inner := encap.InnerMTU(encap.FormatIP, outer, u.Outer6())
	return mtus{outer, inner}, checkMTU(inner, least, outer)
}

// want implements settings. A node is one peer, at one address for both of its subnets.
func (b *udp) want(s situation) desired {
	d := desired{ways: s.ways(typeUDP)}
	for w := range d.used() {
		switch a4, a6 := w.r.PublicIP, w.r.PublicIPv6; {
		case s.under.Addr4.IsValid() && a4.IsValid():
			w.send(a4, true)
		case s.under.Addr6.IsValid() && a6.IsValid():
			w.send(a6, true)
		default:
			w.skip("no common address family: it is reached at %v, we send from %v", valid(a4, a6), s.under.Local())
		}
		if w.How != HowSkipped {
			w.How = HowTunnel
		}
	}
	d.carry(s, b.senders, true, port.Supported)
	return d
}
