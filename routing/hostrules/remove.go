package hostrules

import (
	"fmt"
	"slices"
)

// removal is what goes from one table of iptables: lines for the operator, and what iptables-restore has to
// read.
type removal struct {
	lines   []string
	payload string
}

// removal decides what goes from p's table. It is pure. A rule of ours goes if it is about our network, and
// the chain with the rules that lead there if nothing else is in it. With Flannel, rules that are nobody's
// but flannel's go too. With Port only those go for which a living flannel has its own.
func (p place) removal(have saved, o RemoveOptions) (r removal) {
	rules, there := have.rules[p.chain]
	s := o.scope()
	jumps := func(marked bool) (n int) {
		for _, from := range have.order {
			for _, rule := range have.rules[from] {
				if from != p.chain && target(rule) == p.chain && isMarked(rule) == marked {
					n++
				}
			}
		}
		return n
	}
	theirs := slices.ContainsFunc(rules, func(rule string) bool { return !isMarked(rule) })
	if o.Port && !(jumps(false) > 0) {
		return r
	}
	goes := func(rule string) bool {
		switch {
		case isMarked(rule) && sharedMark(rule):
			return !slices.ContainsFunc(rules, func(x string) bool { return isMarked(x) && s.foreign(p.table, x) })
		case isMarked(rule):
			return !s.foreign(p.table, rule)
		}
		return o.Flannel && !o.Port
	}
	rest := slices.ContainsFunc(rules, func(rule string) bool { return !goes(rule) })
	marked := slices.ContainsFunc(rules, isMarked) || jumps(true) > 0
	var body, remove []string
	whole := there && !rest && (len(rules) > 0 || marked || o.Flannel) && !o.Port
	if whole {
		r.lines = append(r.lines, fmt.Sprintf("chain %s, %d rules", p.chain, len(rules)))
		body, remove = append(body, "-F "+p.chain), append(remove, "-X "+p.chain)
	}
	others := slices.ContainsFunc(rules, func(x string) bool { return isMarked(x) && !goes(x) })
	for _, from := range have.order {
		for _, rule := range have.rules[from] {
			gone := false
			switch {
			case from == p.chain:
				gone = !whole && goes(rule) && (!o.Port || theirs)
			case target(rule) == p.chain:
				gone = whole || isMarked(rule) && !others
			}
			if gone {
				r.lines = append(r.lines, fmt.Sprintf("rule in %s: %s", from, rule))
				body = append(body, "-D "+from+" "+rule)
			}
		}
	}
	r.payload = restoring(p.table, body, remove)
	return r
}
