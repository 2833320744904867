package routing

import (
	"encoding/json"
	"fmt"

	"weft/encap"
	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
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
func isTUN(d kernel.Device) bool { return d.Kind == "tun" && kernel.IsTUNName(d.Name) }

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

func (b *udp) Facts() Facts {
	return Facts{Carrier: CarrierWeft, Port: b.Port, Guard: hostrules.Guard{Port: b.Port}}
}

// trait has no record, since flannel's writes no BackendType.
func (b *udp) trait() trait {
	return trait{uniform: true, plane: &planeTrait{options: b.options(encap.FormatIP, b.Port),
		recv: port.Supported}}
}

func (*udp) publish() (data, v6data json.RawMessage) { return nil, nil }

func (b *udp) sizes(u underlay.Link) (mtus, error) {
	outer, least := outerMTU(u.MTU, b.MTU), minMTU4-encap.FormatIP.Overhead(u.Outer6())
	if b.ipv6 {
		least = minMTU6
	}
	inner := encap.InnerMTU(encap.FormatIP, outer, u.Outer6())
	return mtus{outer, inner}, checkMTU(inner, least, outer)
}

// want implements backendType. A node is one peer, at one address for both of its subnets.
func (b *udp) want(s situation) desired {
	c := desired{spec: localSpec(s, b.senders)}
	c.room(len(s.set.Peers))
	for i := range s.set.Peers {
		r := &s.set.Peers[i]
		p, why := peerSpec(*r, s.under)
		if why != "" {
			c.skip(r, p, why)
			continue
		}
		c.add(r, p, len(c.reached))
	}
	c.settleAddrs(s.tenure, s.displaced)
	c.spec.LeftOut = c.unreached()
	return c
}

// peerSpec converts one record, or says why it is not used.
func peerSpec(r lease.Record, u underlay.Link) (tunnel.PeerSpec, string) {
	p := tunnel.PeerSpec{
		Name:         r.Called(),
		Subnets:      subnets(r.Subnets),
		InnerSources: valid(r.PublicIP, r.PublicIPv6),
	}
	if why := foreign(r, typeUDP); why != "" {
		return p, why
	}
	switch {
	case u.Addr4.IsValid() && r.PublicIP.IsValid():
		p.Addr = r.PublicIP
	case u.Addr6.IsValid() && r.PublicIPv6.IsValid():
		p.Addr = r.PublicIPv6
	default:
		return p, fmt.Sprintf("no common address family: it is reached at %v, we send from %v",
			valid(r.PublicIP, r.PublicIPv6), u.Local())
	}
	p.Sources = valid(r.PublicIP, r.PublicIPv6)
	if r.Weft != nil {
		p.Weft, p.Recv, p.MTU = true, port.ParseRecv(r.Weft.Recv), r.Weft.MTU
		p.Sources = append(p.Sources, valid(r.Weft.Addrs...)...)
	}
	return p, ""
}
