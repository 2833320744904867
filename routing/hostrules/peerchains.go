package hostrules

import (
	"fmt"
	"net/netip"
)

// peersInChain bounds the rules of one chain, so that the number of rules that a packet meets grows
// with the logarithm of the number of peers.
const peersInChain = 32

// tree is a set of addresses for an iptables without sets. If they are many, they are spread over several
// chains by the bits in which they differ. One chain leads to another by goto, so that a return in it goes
// back to the chain from which the first was called.
type tree struct {
	root, flag string
	found, end string // what becomes of a packet with one of the addresses, and of any other; "" returns
}

// peerChains is the set of peers that datagrams come from: a packet from one of them returns to where
// chainPeers was called from, any other goes to chainStrangers. peers are sorted and of one family.
func peerChains(peers []netip.Addr) []chain {
	return tree{chainPeers, "-s", "-j RETURN", "-g " + chainStrangers}.chains(peers)
}

// toPeerChains is the set of peers that datagrams go to: a packet to one of them is dropped, any other
// returns to where chainToPeers was called from.
func toPeerChains(peers []netip.Addr) []chain {
	return tree{chainToPeers, "-d", commentMatch(commentPods) + " -j DROP", ""}.chains(peers)
}

func (t tree) chains(peers []netip.Addr) []chain {
	var out []chain
	t.split(&out, t.root, peers, 0)
	return out
}

// split appends chain name for peers, which agree in their first known bits, and the chains below it.
func (t tree) split(out *[]chain, name string, peers []netip.Addr, known int) {
	at := len(*out)
	*out = append(*out, chain{name: name})
	var rules []string
	if len(peers) <= peersInChain {
		for _, p := range peers {
			rules = append(rules, fmt.Sprintf("%s %v/%d %s", t.flag, p, p.BitLen(), t.found))
		}
	} else {
		bits := min(agree(peers[0], peers[len(peers)-1], known)+4, peers[0].BitLen())
		for len(peers) > 0 {
			p, _ := peers[0].Prefix(bits) // bits is within the address
			n := 1
			for n < len(peers) && p.Contains(peers[n]) {
				n++
			}
			below := fmt.Sprintf("%s-%d", t.root, len(*out))
			rules = append(rules, fmt.Sprintf("%s %s -g %s", t.flag, p, below))
			t.split(out, below, peers[:n], bits)
			peers = peers[n:]
		}
	}
	if t.end != "" {
		rules = append(rules, t.end)
	}
	(*out)[at].rules = rules
}

// agree returns in how many leading bits a and b are the same; they are known to be in the first known bits.
func agree(a, b netip.Addr, known int) int {
	for known < a.BitLen() {
		p, _ := a.Prefix(known + 1) // within the address
		if !p.Contains(b) {
			break
		}
		known++
	}
	return known
}
