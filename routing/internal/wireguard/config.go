package wireguard

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Config is all that a device is to have.
type Config struct {
	Private Secret
	// Port is the UDP port. Local4 and Local6 are the underlay's addresses that it is bound to in user space, the zero Addr for a family
	// without; the kernel's device has no address of its own.
	Port           uint16
	Local4, Local6 netip.Addr
	// MTU is the largest inner packet, in bytes.
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
	return p.Key == q.Key && p.Preshared == q.Preshared && p.Endpoint == q.Endpoint && p.Keepalive == q.Keepalive && slices.Equal(p.AllowedIPs, q.AllowedIPs)
}

// Changes lead from one set of peers to another. Removing comes first: a subnet that another peer has from now on is then nobody's
// for a moment, and never the wrong one's.
type Changes struct {
	Remove []PublicKey
	// Set are the peers that are new or have changed, each with everything that it is to have.
	Set []PeerChange
}

// PeerChange is one of them.
type PeerChange struct {
	Peer
	// New says that the device has no such peer, so that there is no session.
	New bool
	// Move says that the endpoint is to be set. Else the one that the peer has stays: it may be where the peer was last heard from.
	Move bool
}

// Empty reports whether there is nothing to do.
func (c Changes) Empty() bool { return len(c.Remove)+len(c.Set) == 0 }

// Plan compares what a device was told last with what it is to have, both by record, so that an endpoint that the device has learnt
// is left alone until the record says another. It is pure and deterministic.
func Plan(have, want []Peer) Changes {
	there := make(map[PublicKey]Peer, len(have))
	for _, h := range have {
		there[h.Key] = h
	}
	var c Changes
	for _, w := range want {
		h, known := there[w.Key]
		delete(there, w.Key)
		if !known || !h.equal(w) {
			c.Set = append(c.Set, PeerChange{Peer: w, New: !known, Move: !known || h.Endpoint != w.Endpoint})
		}
	}
	c.Remove = slices.SortedFunc(maps.Keys(there), func(a, b PublicKey) int { return slices.Compare(a[:], b[:]) })
	slices.SortStableFunc(c.Set, func(a, b PeerChange) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return c
}

// text is the changes in WireGuard's configuration protocol (https://www.wireguard.com/xplatform/). It has secrets in it.
func (c Changes) text() string {
	var b strings.Builder
	line := func(key string, value any) { _, _ = fmt.Fprintf(&b, "%s=%v\n", key, value) }
	for _, k := range c.Remove {
		line("public_key", k.hex())
		line("remove", true)
	}
	for _, p := range c.Set {
		line("public_key", p.Key.hex())
		line("preshared_key", p.Preshared.Hex()) // zeros take away one that was there
		if p.Move && p.Endpoint.IsValid() {
			line("endpoint", p.Endpoint)
		}
		line("replace_allowed_ips", true)
		for _, a := range p.AllowedIPs {
			line("allowed_ip", a)
		}
		line("persistent_keepalive_interval", p.Keepalive)
	}
	return b.String()
}

// sorted are the peers by key, so that two readings compare.
func sorted(ps []PeerState) []PeerState {
	slices.SortFunc(ps, func(a, b PeerState) int { return cmp.Compare(string(a.Key[:]), string(b.Key[:])) })
	return ps
}
