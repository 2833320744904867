package hostrules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"weft/lease"
)

// barrierNotes keeps what was found out about chains that drop packets of the overlay, so that it is not asked with each check.
type barrierNotes struct {
	asked      time.Time
	took       time.Duration
	generation uint32
	guard      Guard
	peers      *lease.Record
	found      []string
}

// notesFresh is how long an answer is used while nftables says that nothing changed. Legacy iptables does not say.
const notesFresh = 30 * time.Second

// notesShare bounds the time that asking takes to so small a part of all: with a kube-proxy in nftables the rules change all the
// time, and there are thousands.
const notesShare = 100

// mostAsked bounds for how many peers the rules are asked: they may look at the sender.
const mostAsked = 8

// notes name the chains that drop peers' datagrams to the overlay's port, and forwarded packets of the overlay.
func (n *barrierNotes) notes(c Config, g Guard, set lease.Set) []string {
	var first *lease.Record
	if len(set.Peers) > 0 {
		first = &set.Peers[0] // a set is immutable, so that another has other records
	}
	generation, age := Changes(), time.Since(n.asked)
	if n.guard == g && (age < notesShare*n.took || n.peers == first && n.generation == generation && age < notesFresh) {
		return n.found
	}
	n.asked, n.guard, n.peers, n.generation = time.Now(), g, first, generation
	n.found = slices.Concat(inputDrops(g, set), forwardDrops(c, set))
	n.took = time.Since(n.asked)
	return n.found
}

// inputDrops names the chains that drop peers' datagrams. Many firewalls let in what belongs to a flow that they know, so that what answers this
// node's own datagrams passes, and what a peer says first does not.
func inputDrops(g Guard, set lease.Set) (found []string) {
	if !g.guards() || g.Underlay == "" {
		return nil
	}
	for i, r := range set.Peers {
		if i == mostAsked {
			break
		}
		for _, way := range [][2]netip.Addr{{r.PublicIP, g.Local4}, {r.PublicIPv6, g.Local6}} {
			if !way[0].IsValid() || !way[1].IsValid() {
				continue
			}
			port := g.in(way[0].Is6()).Port
			p := Packet{Hook: HookInput, In: g.Underlay, Src: way[0], Dst: way[1], Protocol: cmp.Or(g.Protocol, protocolUDP), SrcPort: port, DstPort: port}
			if p.Protocol == protocolIPIP && p.ipv6() {
				continue
			}
			barriers, err := Barriers(p)
			if err != nil {
				return nil // what cannot be read is said elsewhere
			}
			var answers []Barrier
			if len(barriers) > 0 {
				answer := p
				answer.Answer = true
				if answers, err = Barriers(answer); err != nil {
					return nil
				}
			}
			for _, b := range barriers {
				unless := ""
				if !slices.Contains(answers, b) {
					unless = " unless they answer this node's own"
				}
				note := fmt.Sprintf("%s from peers to %s, as from %s, do not come in%s: %s them; %s", p.Plural(), p.Target(), way[0], unless, b, b.Allow(p))
				if !slices.ContainsFunc(found, func(x string) bool { return strings.Contains(x, b.String()) }) {
					found = append(found, note)
				}
			}
		}
	}
	return found
}

// forwardDrops names the chains that drop packets between pods here and pods elsewhere, whether a rule does it or a policy.
func forwardDrops(c Config, set lease.Set) (found []string) {
	const tcp, client, server = 6, 40000, 80
	type barrierOf struct {
		Barrier
		ipv6 bool
	}
	var said []barrierOf
	inner, pods := podLinks(set.Own.Subnets)
	for _, f := range []struct {
		on       bool
		own, all netip.Prefix
		peer     func(lease.Record) netip.Prefix
	}{
		{c.Network.EnableIPv4, set.Own.V4, c.Network.Network, func(r lease.Record) netip.Prefix { return r.V4 }},
		{c.Network.EnableIPv6, set.Own.V6, c.Network.IPv6Network, func(r lease.Record) netip.Prefix { return r.V6 }},
	} {
		if !f.on || !f.own.IsValid() {
			continue
		}
		there := elsewhere(f.all, f.own)
		for _, r := range set.Peers {
			if p := f.peer(r); p.IsValid() {
				there = p.Masked().Addr().Next().Next()
				break
			}
		}
		here := f.own.Masked().Addr().Next().Next()
		for _, p := range []Packet{
			{Hook: HookForward, In: inner, Out: pods, Src: there, Dst: here, Protocol: tcp, SrcPort: client, DstPort: server},
			{Hook: HookForward, In: pods, Out: inner, Src: here, Dst: there, Protocol: tcp, SrcPort: client, DstPort: server},
		} {
			if !p.Src.IsValid() || !p.Dst.IsValid() {
				continue
			}
			barriers, err := Barriers(p)
			if err != nil {
				return nil // what cannot be read is said elsewhere
			}
			for _, b := range barriers {
				family := p.ipv6() && strings.HasPrefix(b.Firewall, "iptables") // which has a table for each
				if key := (barrierOf{b, family}); !slices.Contains(said, key) {
					said = append(said, key)
					found = append(found, fmt.Sprintf("packets that are forwarded between pods and other nodes, as from %s to %s, are dropped: %s them; %s", p.Src, p.Dst, b, b.Allow(p)))
				}
			}
		}
	}
	return found
}

// elsewhere is an address in the subnet beside ours; invalid if the network has none.
func elsewhere(network, own netip.Prefix) netip.Addr {
	if !network.IsValid() || network.Bits() >= own.Bits() {
		return netip.Addr{}
	}
	b, last := own.Masked().Addr().AsSlice(), own.Bits()-1
	b[last/8] ^= 0x80 >> (last % 8)
	a, _ := netip.AddrFromSlice(b) // it is as long as an address
	return a.Next().Next()
}

// podLinks are the links by which the overlay's packets and those of pods come: flannel's names where there are none.
func podLinks(own lease.Subnets) (inner, pods string) {
	inner, pods = "flannel0", "cni0"
	links, _ := netlink.LinkList() // what is missing of it has its usual name
	for _, l := range links {
		a := l.Attrs()
		if a.Alias == ownAlias && strings.HasPrefix(a.Name, "flannel") {
			inner = a.Name
			continue
		}
		if l.Type() != "bridge" {
			continue
		}
		addrs, _ := netlink.AddrList(l, netlink.FAMILY_ALL)
		for _, x := range addrs {
			if ip, ok := netip.AddrFromSlice(x.IP); ok && (own.V4.IsValid() && own.V4.Contains(ip.Unmap()) || own.V6.IsValid() && own.V6.Contains(ip)) {
				pods = a.Name
			}
		}
	}
	return inner, pods
}
