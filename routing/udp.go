package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"weft/encap"
	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
)

// typeUDP is flannel's udp: this program carries inner packets, bare in UDP.
const typeUDP = lease.DefaultBackend

// minMTU6 is the least MTU of a link that carries IPv6 (RFC 8200 section 5), and
// minMTU4 what every IPv4 host must take (RFC 791 section 3.2). In bytes.
const minMTU6, minMTU4 = encap.MinMTU6, encap.MinMTU4

func udpType() Type {
	return Type{
		Name: typeUDP, Settings: func(c lease.NetworkConfig, _ func(string) bool) settings { return &udp{ipv6: c.EnableIPv6} },
		Device: isTUN, // flannel's are gone with it: one without our mark is in use
	}
}

// isTUN reports whether d has the name and the kind of the data plane's TUN.
func isTUN(d Device) bool { return d.Kind == "tun" && kernel.IsTUNName(d.Name) }

// udp is flannel's udp: inner packets bare in UDP, one route for all peers.
type udp struct {
	// Port is every node's UDP port.
	Port uint16 `default:"8285" range:"1..65535" shared:"port"`
	dataPlane
	senders
	// MTU is the largest datagram with its IP header, in bytes, as flannel's key MTU is for vxlan; 0 for that of the
	// underlay link. A value above the link's has no effect.
	MTU  int  `range:"576..65535" range6:"1308..65535"`
	ipv6 bool // the network has it
}

func (b *udp) Facts() Facts {
	return Facts{Carrier: CarrierWeft, Port: b.Port, Guard: hostrules.Guard{Port: b.Port}}
}

func (b *udp) Open(_ context.Context, c BackendConfig) (*Node, error) { return newNode(c, b, nil) }

// overlayMTU is the largest inner packet, in bytes, over an underlay of linkMTU, of which most is used at the most.
// Peers that take less do not lower it: the data plane tells senders to such a
// peer so one by one, and two hosts with jumbo frames keep them among themselves.
func overlayMTU(linkMTU, most int, outer6, ipv6 bool) (int, error) {
	mtu := encap.InnerMTU(encap.FormatIP, outerMTU(linkMTU, most), outer6)
	least := minMTU4 - encap.FormatIP.Overhead(outer6)
	if ipv6 {
		least = minMTU6
	}
	if mtu < least {
		return mtu, fmt.Errorf("MTU %d of the overlay is below the %d that it needs: raise the MTU of the underlay, now %d, by %d (IPv6 needs 1280 inside)",
			mtu, least, outerMTU(linkMTU, most), least-mtu)
	}
	return mtu, nil
}

// outerMTU is the largest datagram with its IP header, in bytes, of which the config says how large it may be at the
// most; 0 if it does not.
func outerMTU(linkMTU, most int) int {
	if most > 0 {
		return min(linkMTU, most)
	}
	return linkMTU
}

// trait has no record, since flannel's writes no BackendType.
func (b *udp) trait() trait {
	return trait{name: typeUDP, uniform: true, plane: &planeTrait{options: b.options(encap.FormatIP, b.Port), recv: tunnel.Supported}}
}

func (*udp) publish() (data, v6data json.RawMessage) { return nil, nil }

func (b *udp) sizes(u underlay.Link) (mtus, error) {
	inner, err := overlayMTU(u.MTU, b.MTU, u.Outer6(), b.ipv6)
	return mtus{outerMTU(u.MTU, b.MTU), inner}, err
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
	if !isUDP(r.BackendType) {
		return p, fmt.Sprintf("its backend is %s, this network's is udp", backendName(r.BackendType))
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
		p.Weft, p.Recv, p.MTU = true, tunnel.ParseRecv(r.Weft.Recv), r.Weft.MTU
		p.Sources = append(p.Sources, valid(r.Weft.Addrs...)...)
	}
	return p, ""
}

// isUDP reports whether a record's BackendType means this backend: flannel writes none.
func isUDP(backendType string) bool {
	return strings.EqualFold(lease.BackendName(backendType), typeUDP)
}
