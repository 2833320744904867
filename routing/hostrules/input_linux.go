package hostrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft/lease"
)

// inputNotes keeps what was found out about the rules for incoming packets, so that it is not asked with each check.
type inputNotes struct {
	asked      time.Time
	took       time.Duration
	generation uint32
	guard      Guard
	peers      *lease.Record
	found      []string
}

// inputFresh is how long an answer is used while nftables says that nothing changed. Legacy iptables does not say.
const inputFresh = 30 * time.Second

// inputShare bounds the time that asking takes to so small a part of all: with a kube-proxy in nftables the rules change all the
// time, and there are thousands.
const inputShare = 100

// mostAsked bounds for how many peers the rules are asked: they may look at the sender.
const mostAsked = 8

// notes name the chains that drop peers' datagrams to the overlay's port.
func (n *inputNotes) notes(g Guard, set lease.Set) []string {
	var first *lease.Record
	if len(set.Peers) > 0 {
		first = &set.Peers[0] // a set is immutable, so that another has other records
	}
	generation, age := Changes(), time.Since(n.asked)
	if n.guard == g && (age < inputShare*n.took || n.peers == first && n.generation == generation && age < inputFresh) {
		return n.found
	}
	n.asked, n.guard, n.peers, n.generation, n.found = time.Now(), g, first, generation, nil
	defer func() { n.took = time.Since(n.asked) }()
	if g.Port == 0 || g.Underlay == "" {
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
			const udp = 17
			p := Packet{Hook: HookInput, In: g.Underlay, Src: way[0], Dst: way[1], Protocol: udp, SrcPort: g.Port, DstPort: g.Port}
			barriers, err := Barriers(p)
			if err != nil {
				return nil // what cannot be read is said elsewhere
			}
			for _, b := range barriers {
				note := fmt.Sprintf("datagrams from peers to UDP port %d, as from %s, do not come in: %s them; %s", g.Port, way[0], b, b.Allow(p))
				if !slices.ContainsFunc(n.found, func(x string) bool { return strings.Contains(x, b.String()) }) {
					n.found = append(n.found, note)
				}
			}
		}
	}
	return n.found
}
