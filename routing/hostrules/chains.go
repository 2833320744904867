package hostrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// These are our chains in iptables' tables. The first two are flannel's.
const (
	chainMasquerade = "FLANNEL-POSTRTG" // in nat
	chainForward    = "FLANNEL-FWD"     // in filter
	// The chains from here on drop packets. They are in mangle, which comes before filter, since a
	// rule of somebody else that accepts the packet earlier must not prevent the drop.
	chainPodsInput   = "WEFT-INPUT"
	chainPodsForward = "WEFT-FORWARD"
	chainPeers       = "WEFT-PEERS" // and WEFT-PEERS-1 and so on
	chainStrangers   = "WEFT-STRANGERS"
	chainToPeers     = "WEFT-TO" // and WEFT-TO-1 and so on
	chainSealedIn    = "WEFT-SEALED-IN"
	chainSealedOut   = "WEFT-SEALED-OUT"
)

// tablePort is iptables' table with the rules that drop packets, and no other of ours.
const tablePort = "mangle"

// iptablesTables are the tables that we use, in the order in which they are changed: the one that drops comes first.
func iptablesTables() []string { return []string{tablePort, "filter", "nat"} }

// ownsChain reports whether a chain of one of iptables' tables is ours by its name: exactly those that
// iptablesRules makes. Others whose names begin alike are somebody else's.
func ownsChain(table, name string) bool {
	switch table {
	case "nat":
		return name == chainMasquerade
	case "filter":
		return name == chainForward
	case "mangle":
		for _, tree := range []string{chainPeers, chainToPeers} {
			if number, ok := strings.CutPrefix(name, tree+"-"); ok {
				n, err := strconv.ParseUint(number, 10, 32)
				return err == nil && strconv.FormatUint(n, 10) == number
			}
		}
		return slices.Contains([]string{chainPodsInput, chainPodsForward, chainPeers, chainStrangers, chainToPeers, chainSealedIn, chainSealedOut}, name)
	}
	return false
}

// chain is a chain of ours with its rules, as iptables-save writes them after "-A CHAIN ".
type chain struct {
	name  string
	rules []string
}

// jump is a rule of ours in a chain of the host.
type jump struct{ from, rule string }

// table is what one of iptables' tables should have of ours.
type table struct {
	chains []chain
	jumps  []jump
}

func (t table) empty() bool { return len(t.chains) == 0 && len(t.jumps) == 0 }

// iptablesRules renders f for iptables, by table.
func iptablesRules(f familyRules) map[string]table {
	var mangle, filter, nat table
	if f.masquerade != nil {
		nat.chains = append(nat.chains, renderChain(chainMasquerade, f, f.masquerade))
		nat.jumps = append(nat.jumps, jump{"POSTROUTING", jumpRule(commentMasquerade, chainMasquerade)})
	}
	if f.forward != nil {
		filter.chains = append(filter.chains, renderChain(chainForward, f, f.forward))
		filter.jumps = append(filter.jumps, jump{"FORWARD", jumpRule(commentForward, chainForward)})
	}
	if input := f.portInput(); input != nil {
		mangle.chains = append(mangle.chains, renderChain(chainPodsInput, f, input))
		mangle.jumps = append(mangle.jumps, jump{"INPUT", jumpRule(commentPort, chainPodsInput)})
	}
	if f.podsForward != nil {
		mangle.chains = append(mangle.chains, renderChain(chainPodsForward, f, f.podsForward))
		mangle.jumps = append(mangle.jumps, jump{"FORWARD", jumpRule(commentPort, chainPodsForward)})
	}
	if f.sealedIn != nil {
		mangle.chains = append(mangle.chains, renderChain(chainSealedIn, f, f.sealedIn), renderChain(chainSealedOut, f, f.sealedOut))
		mangle.jumps = append(mangle.jumps, jump{"PREROUTING", jumpRule(commentSealed, chainSealedIn)}, jump{"POSTROUTING", jumpRule(commentSealed, chainSealedOut)})
	}
	if f.peersInput != nil {
		mangle.chains = append(mangle.chains, peerChains(f.peers)...)
		mangle.chains = append(mangle.chains, chain{chainStrangers, []string{commentMatch(commentStranger) + " -j DROP"}})
	}
	if f.toPeers() {
		mangle.chains = append(mangle.chains, toPeerChains(f.peers)...)
	}
	return map[string]table{"mangle": mangle, "filter": filter, "nat": nat}
}

func renderChain(name string, f familyRules, rules []rule) chain {
	c := chain{name: name}
	for _, r := range rules {
		c.rules = append(c.rules, r.iptables(f.randomFully))
	}
	return c
}

// iptables writes r with the words and in the order of iptables-save.
func (r rule) iptables(randomFully bool) string {
	var w []string
	prefix := func(flag string, p netip.Prefix, not bool) {
		if !p.IsValid() || p.Bits() == 0 && !not { // iptables-save leaves out what matches everything
			return
		}
		if not {
			w = append(w, "!")
		}
		w = append(w, flag, p.String())
	}
	prefix("-s", r.src, r.nsrc)
	prefix("-d", r.dst, r.ndst)
	if r.in != "" {
		w = append(w, "-i", r.in)
	}
	if r.out != "" {
		w = append(w, "-o", r.out)
	}
	if r.port != 0 {
		w = append(w, "-p udp -m udp --dport", fmt.Sprint(r.port))
	}
	if r.protocol != 0 {
		w = append(w, "-p", fmt.Sprint(r.protocol))
	}
	if r.marked {
		w = append(w, fmt.Sprintf("-m mark --mark %#x/%#x", kubeMark, kubeMark))
	}
	w = append(w, commentMatch(r.comment), "-j")
	switch {
	case r.fromStranger:
		w = append(w, chainPeers)
	case r.toPeer:
		w = append(w, chainToPeers)
	case r.do == verdictReturn:
		w = append(w, "RETURN")
	case r.do == verdictAccept:
		w = append(w, "ACCEPT")
	case r.do == verdictDrop:
		w = append(w, "DROP")
	case r.do == verdictMasquerade && randomFully:
		w = append(w, "MASQUERADE --random-fully")
	case r.do == verdictMasquerade:
		w = append(w, "MASQUERADE")
	}
	return strings.Join(w, " ")
}

func jumpRule(comment, to string) string { return commentMatch(comment) + " -j " + to }

// commentMatch quotes a comment as iptables-save does; our comments have no quotation mark.
func commentMatch(text string) string { return `-m comment --comment "` + text + `"` }
