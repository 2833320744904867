package hostrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// These are flannel's chains in iptables, in nat and in filter.
const (
	chainMasquerade = "FLANNEL-POSTRTG"
	chainAccept     = "FLANNEL-FWD"
)

// place is a chain of ours with the rule of the host that leads there.
type place struct{ table, chain, from, comment string }

func places() []place {
	return []place{{"filter", chainAccept, "FORWARD", commentForward},
		{"nat", chainMasquerade, "POSTROUTING", commentMasquerade}}
}

func (p place) jump() string { return commentMatch(p.comment) + " -j " + p.chain }

// saved is one table as iptables-save prints it: chains in order with their rules, without the leading "-A
// CHAIN ".
type saved struct {
	order []string
	rules map[string][]string
	drops []string // chains whose policy drops
	// packets counts what met each rule; only where iptables-save was asked to count.
	packets map[string][]uint64
}

// parseSave reads the tables of iptables-save's output. Lines that are not understood are left out.
func parseSave(text string) map[string]saved {
	tables := map[string]saved{}
	var s saved
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table, s = line[1:], saved{rules: map[string][]string{}, packets: map[string][]uint64{}}
		case table == "":
		case line == "COMMIT":
			tables[table], table = s, ""
		case strings.HasPrefix(line, ":"):
			chain, policy, _ := strings.Cut(line[1:], " ")
			if strings.HasPrefix(policy, "DROP") {
				s.drops = append(s.drops, chain)
			}
			if _, known := s.rules[chain]; !known && chain != "" {
				s.order = append(s.order, chain)
				s.rules[chain] = nil
			}
		case strings.HasPrefix(line, "-A "), strings.HasPrefix(line, "["):
			count, rest, _ := strings.Cut(line, "-A ")
			chain, rule, _ := strings.Cut(rest, " ")
			packets, _, _ := strings.Cut(strings.TrimPrefix(count, "["), ":")
			n, _ := strconv.ParseUint(packets, 10, 64) // none if it did not count
			s.rules[chain], s.packets[chain] = append(s.rules[chain], rule), append(s.packets[chain], n)
		}
	}
	return tables
}

// unquoted are the words of a rule outside quoted comments.
func unquoted(rule string) (words []string) {
	quoted := false
	for _, w := range strings.Fields(rule) {
		opens := !quoted && strings.HasPrefix(w, `"`)
		if opens || quoted {
			quoted = !(strings.HasSuffix(w, `"`) && !strings.HasSuffix(w, `\"`) && !(opens && len(w) == 1))
			continue
		}
		words = append(words, w)
	}
	return words
}

// option is the value of one of the options of a rule, or "".
func option(rule string, names ...string) string {
	words := unquoted(rule)
	for i, w := range words {
		if slices.Contains(names, w) && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// target is the chain that a rule leads to by jump or goto, or "".
func target(rule string) string { return option(rule, "-j", "-g") }

// foreign reports whether a rule in one of our chains is about another network, which a second weft or a
// flannel may have: all addresses that it names are outside ours. One that names no address is ours, but for
// the one about kube-proxy's mark, which all networks share.
func (s scope) foreign(table, rule string) bool {
	src, dst := option(rule, "-s"), option(rule, "-d")
	if src == "" && (dst == "" || table == "nat") {
		return false
	}
	for _, a := range []string{src, dst} {
		if !strings.Contains(a, "/") && a != "" {
			a += "/32"
		}
		if p, err := netip.ParsePrefix(a); err == nil && s.has(p) {
			return false
		}
	}
	return true
}

// sharedMark reports whether a rule is the one about kube-proxy's mark.
func sharedMark(rule string) bool { return option(rule, "--mark") != "" && target(rule) == "RETURN" }

// payload returns what iptables-restore --noflush has to read so that a table has the wanted rules of p, and
// nothing else of ours; "" if it is so. It is pure. Rules of another network stay where they are.
func (p place) payload(have saved, want []string, s scope) string {
	others := slices.ContainsFunc(have.rules[p.chain], func(r string) bool { return s.foreign(p.table, r) })
	return restoring(p.table, p.plan(have, want, func(r string) bool {
		return !s.foreign(p.table, r) && !(others && sharedMark(r))
	}))
}

// plan returns lines by which the chain gets the wanted rules in place of those that go. Without any rule the
// chain goes, too, and so does every rule that leads there.
func (p place) plan(have saved, want []string, goes func(rule string) bool) (lines []string) {
	rules, there := have.rules[p.chain]
	stay := slices.DeleteFunc(slices.Clone(rules), goes)
	switch {
	case len(want) > 0 && len(stay) == 0 && !slices.Equal(rules, want):
		lines = append(lines, ":"+p.chain+" - [0:0]") // which also empties it
		for _, r := range want {
			lines = append(lines, "-A "+p.chain+" "+r)
		}
	case len(stay) > 0:
		mine := slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return !goes(r) })
		block := slices.DeleteFunc(slices.Clone(want), sharedMark)
		if slices.Equal(mine, block) {
			break
		}
		for _, r := range mine {
			lines = append(lines, "-D "+p.chain+" "+r)
		}
		if !slices.ContainsFunc(stay, sharedMark) {
			for _, r := range want {
				if sharedMark(r) {
					lines = append(lines, "-I "+p.chain+" "+r)
				}
			}
		}
		for _, r := range block {
			lines = append(lines, "-A "+p.chain+" "+r)
		}
	}
	// A rule of ours leads there for all networks of weft, and what else does is a flannel's.
	needed, once := len(want) > 0 || slices.ContainsFunc(stay, isMarked), false
	for _, from := range have.order {
		for _, r := range have.rules[from] {
			switch own := from == p.from && r == p.jump(); {
			case from == p.chain || target(r) != p.chain:
			case own && needed && !once:
				once = true
			case own || len(stay) == 0:
				lines = append(lines, "-D "+from+" "+r)
			}
		}
	}
	if len(want) > 0 && !once {
		lines = append(lines, "-A "+p.from+" "+p.jump())
	}
	if len(want)+len(stay) == 0 && there {
		lines = append(lines, "-F "+p.chain, "-X "+p.chain)
	}
	return lines
}

// restoring puts lines for one table in the form that iptables-restore reads; "" for none.
func restoring(table string, lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
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
	if r.marked {
		w = append(w, fmt.Sprintf("-m mark --mark %#x/%#x", kubeMark, kubeMark))
	}
	w = append(w, commentMatch(r.comment), "-j")
	switch r.do {
	case verdictReturn:
		w = append(w, "RETURN")
	case verdictAccept:
		w = append(w, "ACCEPT")
	case verdictDrop:
		w = append(w, "DROP")
	case verdictMasquerade:
		if w = append(w, "MASQUERADE"); randomFully {
			w = append(w, "--random-fully")
		}
	}
	return strings.Join(w, " ")
}

// commentMatch quotes a comment as iptables-save does; our comments have no quotation mark.
func commentMatch(text string) string { return `-m comment --comment "` + text + `"` }

// rulesFor are the rules of f for p as iptables has them.
func (p place) rulesFor(f familyRules, randomFully bool) (lines []string) {
	rules := f.forward
	if p.table == "nat" {
		rules = f.masquerade
	}
	for _, r := range rules {
		lines = append(lines, r.iptables(f.randomFully && randomFully))
	}
	return lines
}
