package hostrules

import (
	"slices"
	"strings"
)

// saved is one table as iptables-save prints it: chains in order with their rules, which
// are without the leading "-A CHAIN ".
type saved struct {
	order []string
	rules map[string][]string
}

// parseSave reads one table of iptables-save's output. Lines that are not understood are left out.
func parseSave(text, name string) saved {
	s := saved{rules: map[string][]string{}}
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			inside = line[1:] == name
		case !inside:
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			if _, known := s.rules[chain]; !known && chain != "" {
				s.order = append(s.order, chain)
				s.rules[chain] = nil
			}
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[len("-A "):], " ")
			s.rules[chain] = append(s.rules[chain], rule)
		}
	}
	return s
}

// target is the chain that a rule leads to by jump or goto, or "". Words inside a
// quoted comment are no options.
func target(rule string) string {
	quoted := false
	words := strings.Fields(rule)
	for i, w := range words {
		opens := !quoted && strings.HasPrefix(w, `"`)
		if opens || quoted {
			closes := strings.HasSuffix(w, `"`) && !strings.HasSuffix(w, `\"`) && !(opens && len(w) == 1)
			quoted = !closes
			continue
		}
		if (w == "-j" || w == "-g") && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// sameRule reports whether a rule as iptables-save prints it is the one that was written. It names protocols where it can, and
// those without ports are written as numbers.
func sameRule(saved, written string) bool {
	if saved == written {
		return true
	}
	return strings.NewReplacer("-p ipencap ", "-p 4 ", "-p ipv6 ", "-p 41 ").Replace(saved) == written
}

// restorePayload returns what iptables-restore --noflush has to read so that one table becomes
// as wanted; "" if it is. It is pure. A chain of ours that differs is filled anew as a whole, one that does not
// keeps its counters, and afterwards each jump to one from a chain of the host is there once. Those to a seal are made as the first of their chain, and
// left where they are then.
func restorePayload(name string, have saved, want table) string {
	var declare, body, remove []string
	wanted := map[string]bool{}
	for _, c := range want.chains {
		wanted[c.name] = true
		rules, there := have.rules[c.name]
		if there && slices.EqualFunc(rules, c.rules, sameRule) {
			continue
		}
		declare = append(declare, ":"+c.name+" - [0:0]") // which also empties it
		for _, r := range c.rules {
			body = append(body, "-A "+c.name+" "+r)
		}
	}
	seen := map[jump]bool{}
	for _, from := range have.order {
		if ownsChain(name, from) {
			continue
		}
		for _, r := range have.rules[from] {
			if j := (jump{from, r}); ownsChain(name, target(r)) {
				if slices.Contains(want.jumps, j) && !seen[j] {
					seen[j] = true
					continue
				}
				body = append(body, "-D "+from+" "+r)
			}
		}
	}
	for _, j := range want.jumps {
		if seen[j] {
			continue
		}
		add := "-A "
		if to := target(j.rule); to == chainSealedIn || to == chainSealedOut {
			add = "-I " // what is accepted before them would be in plain
		}
		body = append(body, add+j.from+" "+j.rule)
	}
	for _, c := range have.order {
		if ownsChain(name, c) && !wanted[c] {
			body = append(body, "-F "+c)
			remove = append(remove, "-X "+c)
		}
	}
	if len(declare)+len(body) == 0 {
		return ""
	}
	lines := slices.Concat([]string{"*" + name}, declare, body, remove, []string{"COMMIT"})
	return strings.Join(lines, "\n") + "\n"
}
