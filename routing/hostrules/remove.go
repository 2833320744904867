package hostrules

import (
	"fmt"
	"slices"
	"strings"
)

// removal is what goes from one table of iptables.
type removal struct {
	// lines say so to the operator.
	lines []string
	// payload is what iptables-restore --noflush has to read; "" for nothing.
	payload string
}

// planRemoval decides what to remove from a saved table: what carries our mark, and with flannel also
// what has flannel's names or ours without the mark. It is pure.
//
// A chain of ours is removed as a whole. A chain with one of flannel's names is removed if all its rules
// are marked; if a living flannel has rules in it too, only ours are. A rule in a chain of somebody else
// is removed if it leads to a chain that is removed, or if it is marked and leads to one of ours.
func planRemoval(firewall, name string, have saved, flannel bool) removal {
	whole := have.removable(name, flannel)
	var r removal
	var body, remove []string
	for _, c := range have.order {
		if whole[c] {
			r.lines = append(r.lines, fmt.Sprintf("%s: table %s: chain %s, %d rules", firewall, name, c, len(have.rules[c])))
			body, remove = append(body, "-F "+c), append(remove, "-X "+c)
			continue
		}
		own := ownsChain(name, c)
		for _, rule := range have.rules[c] {
			to := target(rule)
			if whole[to] || isMarked(rule) && (own || ownsChain(name, to)) {
				r.lines = append(r.lines, fmt.Sprintf("%s: table %s: rule in %s: %s", firewall, name, c, rule))
				body = append(body, "-D "+c+" "+rule)
			}
		}
	}
	if len(body) > 0 {
		r.payload = strings.Join(slices.Concat([]string{"*" + name}, body, remove, []string{"COMMIT"}), "\n") + "\n"
	}
	return r
}

// planTakenOver decides what to remove from a saved table while a flannel lives: rules of ours that lead to a chain of flannel's from one
// where flannel has a rule for that itself, and ours in such a chain beside flannel's own. It is pure.
func planTakenOver(firewall, name string, have saved) removal {
	theirs := func(from, to string) bool { // flannel's rule leads there
		return slices.ContainsFunc(have.rules[from], func(r string) bool { return !isMarked(r) && target(r) == to })
	}
	var r removal
	var body []string
	for _, c := range have.order {
		lives := ownsChain(name, c) && slices.ContainsFunc(have.rules[c], func(r string) bool { return !isMarked(r) }) &&
			slices.ContainsFunc(have.order, func(from string) bool { return theirs(from, c) })
		for _, rule := range have.rules[c] {
			if to := target(rule); isMarked(rule) && (lives || ownsChain(name, to) && theirs(c, to)) {
				r.lines = append(r.lines, fmt.Sprintf("%s: table %s: rule in %s: %s", firewall, name, c, rule))
				body = append(body, "-D "+c+" "+rule)
			}
		}
	}
	if len(body) > 0 {
		r.payload = strings.Join(slices.Concat([]string{"*" + name}, body, []string{"COMMIT"}), "\n") + "\n"
	}
	return r
}

// removable are the chains that go as a whole.
func (s saved) removable(name string, flannel bool) map[string]bool {
	whole := map[string]bool{}
	for _, c := range s.order {
		if ownsChain(name, c) && (flannel || s.isOurs(c)) {
			whole[c] = true
		}
	}
	// Rules in the chains with the peers have no comment, and these chains may be empty. They are ours if a marked
	// chain leads to them.
	for grown := true; grown; {
		grown = false
		for _, c := range s.order {
			for _, rule := range s.rules[c] {
				to := target(rule)
				if (whole[c] || isMarked(rule)) && !whole[to] && name == "mangle" && ownsChain(name, to) {
					if _, there := s.rules[to]; there {
						whole[to], grown = true, true
					}
				}
			}
		}
	}
	return whole
}

// isOurs reports whether a chain of one of our names is ours and nobody else's.
func (s saved) isOurs(c string) bool {
	rules := s.rules[c]
	if len(rules) == 0 { // it was emptied, and only the rules that lead there tell whose it is
		return slices.ContainsFunc(s.order, func(from string) bool {
			return slices.ContainsFunc(s.rules[from], func(r string) bool { return target(r) == c && isMarked(r) })
		})
	}
	if flannels := c == chainMasquerade || c == chainForward; flannels {
		return !slices.ContainsFunc(rules, func(r string) bool { return !isMarked(r) })
	}
	return slices.ContainsFunc(rules, isMarked)
}

// isMarked reports whether a rule as iptables-save prints it has a comment of ours.
func isMarked(rule string) bool {
	return slices.ContainsFunc(comments(), func(c string) bool { return strings.Contains(rule, commentMatch(c)) })
}
