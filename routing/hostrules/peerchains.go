package hostrules

import (
	"fmt"
	"net/netip"
)

// peersInChain bounds the rules of one chain, so that the way of a packet through the peers'
// chains grows with the number of digits of the addresses, not with that of the peers.
const peersInChain = 32

// peerChains is the set of peers for an iptables without sets: a packet from
// one of them returns to where chainPeers was called from, any other goes to
// chainStrangers. peers are sorted and of one family. Many are spread over chains by the bits in
// which they differ; the goto between these leaves no trace to return to.
func peerChains(peers []netip.Addr) []chain {
	var out []chain
	split(&out, chainPeers, peers, 0)
	return out
}

// split appends chain name for peers, which agree in their first known bits, and the chains below it.
func split(out *[]chain, name string, peers []netip.Addr, known int) {
	at := len(*out)
	*out = append(*out, chain{name: name})
	var rules []string
	if len(peers) <= peersInChain {
		for _, p := range peers {
			rules = append(rules, fmt.Sprintf("-s %v/%d -j RETURN", p, p.BitLen()))
		}
	} else {
		bits := min(agree(peers[0], peers[len(peers)-1], known)+4, peers[0].BitLen())
		for len(peers) > 0 {
			p, _ := peers[0].Prefix(bits) // bits is within the address
			n := 1
			for n < len(peers) && p.Contains(peers[n]) {
				n++
			}
			below := fmt.Sprintf("%s-%d", chainPeers, len(*out))
			rules = append(rules, fmt.Sprintf("-s %v -g %s", p, below))
			split(out, below, peers[:n], bits)
			peers = peers[n:]
		}
	}
	(*out)[at].rules = append(rules, "-g "+chainStrangers)
}

// agree is in how many leading bits a and b are the same, where they are known to be in some.
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
