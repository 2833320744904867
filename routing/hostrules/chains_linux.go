package hostrules

import (
	"slices"

	"github.com/google/nftables"
)

// dropTable is the table of family inet that has everything which drops.
const dropTable = "weft"

// flannelTable is flannel's table of a family, which has what masquerades and accepts.
func flannelTable(ipv6 bool) string {
	if ipv6 {
		return "flannel-ipv6"
	}
	return "flannel-ipv4"
}

// These are the stems of names of chains and sets. Flannel's own chains have the last two as they are.
const (
	chainInput     = "overlay-input"
	chainForward   = "overlay-forward"
	chainSealedIn  = "sealed-in"
	chainSealedOut = "sealed-out"
	setLinks       = "overlay-links"
	chainFlannel   = "forward"
	chainPostrtg   = "postrtg"
)

func setPeers(ipv6 bool) string {
	if ipv6 {
		return "overlay-peers6"
	}
	return "overlay-peers4"
}

func stems() []string {
	return []string{chainInput, chainForward, chainSealedIn, chainSealedOut, setLinks, setPeers(false),
		setPeers(true), chainFlannel, chainPostrtg}
}

// hook is where a chain of nftables is called.
type hook struct {
	kind     nftables.ChainType
	num      *nftables.ChainHook
	priority *nftables.ChainPriority
}

// nftChain is a chain as it should be.
type nftChain struct {
	name string
	hook
	rules []rule
}

// dropChains are those of dropTable, by stem. They come before filter, since a rule of somebody else that
// accepts a packet must not be heard first; in nftables a later chain may drop it all the same.
func dropChains(v4, v6 familyRules) []nftChain {
	mangle := nftables.ChainPriorityMangle
	return slices.DeleteFunc([]nftChain{
		{chainInput, hook{nftables.ChainTypeFilter, nftables.ChainHookInput, mangle},
			slices.Concat(v4.input, v6.input)},
		{chainForward, hook{nftables.ChainTypeFilter, nftables.ChainHookForward, mangle},
			slices.Concat(v4.onward, v6.onward)},
		{chainSealedIn, hook{nftables.ChainTypeFilter, nftables.ChainHookPrerouting, mangle},
			slices.Concat(v4.sealedIn, v6.sealedIn)},
		{chainSealedOut, hook{nftables.ChainTypeFilter, nftables.ChainHookPostrouting, mangle},
			slices.Concat(v4.sealedOut, v6.sealedOut)},
	}, func(c nftChain) bool { return len(c.rules) == 0 })
}

// flannelChains are those of a table of flannel's, by stem.
func flannelChains(w familyRules) []nftChain {
	return slices.DeleteFunc([]nftChain{
		{chainFlannel, hook{nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter},
			w.forward},
		{chainPostrtg, hook{nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource},
			w.masquerade},
	}, func(c nftChain) bool { return len(c.rules) == 0 })
}

// dropSets are the sets that the rules refer to.
func dropSets(chains []nftChain, v4, v6 familyRules, links []string) map[string][]string {
	sets := map[string][]string{}
	for _, c := range chains {
		for _, r := range c.rules {
			if r.inside {
				sets[setLinks] = nil
			}
			if r.fromStranger || r.toPeer {
				sets[setPeers(r.ipv6)] = nil
			}
		}
	}
	for stem := range sets {
		var keys []string
		switch stem {
		case setLinks:
			for _, l := range links {
				keys = append(keys, string(linkName(l)))
			}
		default:
			for _, a := range slices.Concat(v4.peers, v6.peers) {
				if setPeers(a.Is6()) == stem {
					keys = append(keys, string(a.AsSlice()))
				}
			}
		}
		slices.Sort(keys)
		sets[stem] = keys
	}
	return sets
}

// Dropped counts packets that the rules have dropped.
type Dropped struct {
	// Pods counts what came to the overlay's port from pods, or by a link that leads to no peer. Strangers
	// counts what came to the kernel's vxlan from an address that is no peer's. Plain counts what came or would
	// have left in plain where a Seal forbids it.
	Pods      uint64 `json:"podsDropped"`
	Strangers uint64 `json:"strangersDropped"`
	Plain     uint64 `json:"plainDropped,omitempty"`
}

func (d Dropped) plus(e Dropped) Dropped {
	return Dropped{d.Pods + e.Pods, d.Strangers + e.Strangers, d.Plain + e.Plain}
}

// minus returns by how much d exceeds e, which was read before it; rules that were made anew begin at 0.
func (d Dropped) minus(e Dropped) Dropped {
	return Dropped{d.Pods - min(d.Pods, e.Pods), d.Strangers - min(d.Strangers, e.Strangers),
		d.Plain - min(d.Plain, e.Plain)}
}
