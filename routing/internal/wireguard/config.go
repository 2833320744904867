package wireguard

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Config is all that a device is to have.
type Config struct {
	Private Secret
	// Port is the UDP port, on all addresses of the underlay's namespace.
	Port uint16
	// Local4 and Local6 are the underlay's addresses. When they change, the device opens its sockets anew,
	// and forgets from which address it answered each peer.
	Local4, Local6 netip.Addr
	// MTU is the largest inner packet, in bytes. A device of the kernel's has it from its link.
	MTU int
	// Peers are all peers, each with another key.
	Peers []Peer
}

// Peer is one of them.
type Peer struct {
	Key PublicKey
	// Preshared is mixed into the handshake; the zero Secret for none.
	Preshared Secret
	// Endpoint is where the record says that the peer is.
	Endpoint netip.AddrPort
	// Keepalive is after how many seconds of silence a packet is sent; 0 for never.
	Keepalive int
	// AllowedIPs are where its packets may come from, and what is sent to it. They are masked.
	AllowedIPs []netip.Prefix
}

func (p Peer) equal(q Peer) bool {
	return p.Key == q.Key && p.Preshared == q.Preshared && p.Endpoint == q.Endpoint &&
		p.Keepalive == q.Keepalive && slices.Equal(p.AllowedIPs, q.AllowedIPs)
}

// difference leads from what a device was told last to what it is to have. all repeats key and port. Both
// sides are records, so that an endpoint that the device has learnt stays until the record says another one.
// Removals come first: a subnet that moves to another peer is nobody's for a moment, and never the wrong
// peer's. fresh are the peers without a session.
func difference(have, want Config, all bool) (next wgtypes.Config, fresh []Peer) {
	if all || have.Private != want.Private {
		key := want.Private.open()
		next.PrivateKey = &key
	}
	if all || have.Port != want.Port || have.Local4 != want.Local4 || have.Local6 != want.Local6 {
		port := int(want.Port)
		next.ListenPort = &port
	}
	there := make(map[PublicKey]Peer, len(have.Peers))
	for _, h := range have.Peers {
		there[h.Key] = h
	}
	var set []wgtypes.PeerConfig
	for _, w := range want.Peers {
		h, known := there[w.Key]
		delete(there, w.Key)
		if known && h.equal(w) {
			continue
		}
		if !known {
			fresh = append(fresh, w)
		}
		set = append(set, w.config(!known || h.Endpoint != w.Endpoint))
	}
	for _, k := range slices.SortedFunc(maps.Keys(there), compareKeys) {
		next.Peers = append(next.Peers, wgtypes.PeerConfig{PublicKey: k, Remove: true})
	}
	next.Peers = append(next.Peers, set...)
	return next, fresh
}

// config is all that the peer is to have, and its endpoint if move says so.
func (p Peer) config(move bool) wgtypes.PeerConfig {
	preshared, keepalive := p.Preshared.open(), time.Duration(p.Keepalive)*time.Second
	c := wgtypes.PeerConfig{
		PublicKey: p.Key, PresharedKey: &preshared, // zeros take away an earlier one
		PersistentKeepaliveInterval: &keepalive, ReplaceAllowedIPs: true,
	}
	if move && p.Endpoint.IsValid() {
		c.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
	}
	for _, a := range p.AllowedIPs {
		c.AllowedIPs = append(c.AllowedIPs, *netipx.PrefixIPNet(a))
	}
	return c
}

// empty reports whether there is nothing to tell.
func empty(c wgtypes.Config) bool {
	return c.PrivateKey == nil && c.ListenPort == nil && len(c.Peers) == 0
}
