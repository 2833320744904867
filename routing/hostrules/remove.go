package hostrules

import (
	"fmt"
	"slices"
	"strings"
)

// removal decides what goes from p's table: it returns lines for iptables-restore, and the same for the
// operator. It is pure. A rule of ours goes if it is about our network, and the chain with the rules that
// lead there if nothing else is in it. With Flannel, rules that are nobody's but flannel's go too. With Port
// only those go for which a living flannel has its own.
func (p place) removal(have saved, o RemoveOptions) (lines, said []string) {
	s, rules := o.scope(), have.rules[p.chain]
	var jumps []string
	for _, from := range have.order {
		for _, r := range have.rules[from] {
			if from != p.chain && target(r) == p.chain {
				jumps = append(jumps, r)
			}
		}
	}
	unmarked := func(r string) bool { return !isMarked(r) }
	lives := slices.ContainsFunc(jumps, unmarked) && slices.ContainsFunc(rules, unmarked)
	ours := slices.ContainsFunc(rules, isMarked) || slices.ContainsFunc(jumps, isMarked)
	if o.Port && !lives || !o.Flannel && !ours {
		return nil, nil
	}
	others := slices.ContainsFunc(rules, func(r string) bool { return isMarked(r) && s.foreign(p.table, r) })
	lines = p.plan(have, nil, func(r string) bool {
		if isMarked(r) {
			return !s.foreign(p.table, r) && !(others && sharedMark(r))
		}
		return o.Flannel && !o.Port
	})
	for _, line := range lines {
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "-D":
			chain, rule, _ := strings.Cut(rest, " ")
			said = append(said, fmt.Sprintf("rule in %s: %s", chain, rule))
		case "-X":
			said = append(said, fmt.Sprintf("chain %s, %d rules", rest, len(rules)))
		}
	}
	return lines, said
}
