package hostrules

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Suspect is a firewall of the host that may drop packets of the overlay. Nothing here reads what its rules
// accept, so that it may as well accept them all.
type Suspect struct {
	// Hook is input, forward or output.
	Hook string
	// Table and Chain are where a policy drops what no rule accepts. Legacy says that they are legacy iptables'.
	Table, Chain string
	IPv6, Legacy bool
	// Rule is the place of a rule that drops, from 1; 0 if a policy does. Sure says that the rules before it
	// only drop too, and Ahead that the one by which weft's or flannel's rules accept is behind it, or in no
	// table of legacy iptables. Dropped is how many packets it has dropped; 0 for one that drops all.
	Rule        int
	Sure, Ahead bool
	Dropped     uint64
	// Some is how many rules drop a part of what comes to the chain, or to chains that it leads to; 0 for one
	// rule or a policy. Only those of legacy iptables are counted, which neither nft nor its iptables shows.
	Some int
	// Owner is who manages the rules as far as names tell: firewalld, ufw, or "".
	Owner string
}

// String says what may drop.
func (s Suspect) String() string {
	switch {
	case s.Owner == "firewalld":
		return "firewalld may drop it"
	case s.Dropped > 0:
		return fmt.Sprintf("rule %d of chain %s of table %s has dropped %d packets", s.Rule, s.Chain, s.Table,
			s.Dropped)
	case s.Some > 0:
		return fmt.Sprintf("rules of legacy iptables that drop a part of what comes to chain %s, which neither "+
			"nft nor its iptables shows: %d", s.Chain, s.Some)
	case s.Rule != 0:
		return fmt.Sprintf("rule %d of chain %s of table %s drops all that comes to it", s.Rule, s.Chain, s.Table)
	}
	return fmt.Sprintf("chain %s of table %s drops what no rule accepts", s.Chain, s.Table)
}

// Allow is the command that lets UDP to a port, or an IP protocol if port is 0, pass; or what is forwarded by
// link.
func (s Suspect) Allow(port uint16, protocol uint8, link string) string {
	iptables := map[bool]string{false: "iptables", true: "ip6tables"}[s.IPv6]
	if s.Legacy {
		iptables += "-legacy"
	}
	switch forward := s.Hook == "forward"; {
	case forward && s.Owner == "firewalld":
		return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s && firewall-cmd --reload",
			link)
	case forward && s.Owner == "ufw":
		return fmt.Sprintf("ufw route allow in on %s; ufw route allow out on %s", link, link)
	case forward && s.Chain == "FORWARD":
		return fmt.Sprintf("%s -I FORWARD -i %s -j ACCEPT; %s -I FORWARD -o %s -j ACCEPT", iptables, link,
			iptables, link)
	case forward:
		insert := fmt.Sprintf("nft insert rule %s %s", s.Table, s.Chain)
		return fmt.Sprintf("%s iifname %s accept; %s oifname %s accept", insert, link, insert, link)
	case s.Owner == "firewalld" && port == 0:
		return fmt.Sprintf("firewall-cmd --permanent --add-protocol=%d && firewall-cmd --reload", protocol)
	case s.Owner == "firewalld":
		return fmt.Sprintf("firewall-cmd --permanent --add-port=%d/udp && firewall-cmd --reload", port)
	case s.Owner == "ufw" && port == 0: // whose command knows few protocols
		return fmt.Sprintf("add -A ufw-before-%s -p %d -j ACCEPT to /etc/ufw/before.rules, before its COMMIT, "+
			"and then ufw reload", s.Hook, protocol)
	case s.Owner == "ufw" && s.Hook == "output":
		return fmt.Sprintf("ufw allow out %d/udp", port)
	case s.Owner == "ufw":
		return fmt.Sprintf("ufw allow %d/udp", port)
	case s.Chain == strings.ToUpper(s.Hook) && port == 0:
		return fmt.Sprintf("%s -I %s -p %d -j ACCEPT", iptables, s.Chain, protocol)
	case s.Chain == strings.ToUpper(s.Hook):
		return fmt.Sprintf("%s -I %s -p udp --dport %d -j ACCEPT", iptables, s.Chain, port)
	case port == 0:
		return fmt.Sprintf("nft insert rule %s %s meta l4proto %d accept", s.Table, s.Chain, protocol)
	}
	return fmt.Sprintf("nft insert rule %s %s udp dport %d accept", s.Table, s.Chain, port)
}

// Suspects lists the firewalls of this host that may drop packets of the overlay, but for tables of weft and
// flannel.
func Suspects(ctx context.Context) (found []Suspect, err error) {
	hooks := map[nftables.ChainHook]string{*nftables.ChainHookInput: "input",
		*nftables.ChainHookForward: "forward",
		*nftables.ChainHookOutput:  "output"}
	families := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip ",
		nftables.TableFamilyIPv6: "ip6 ", nftables.TableFamilyINet: "inet "}
	var chains []*nftables.Chain
	conn, err := connect()
	if err == nil {
		chains, _ = conn.ListChains() // a kernel without nf_tables has none
	}
	ufw := slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return strings.HasPrefix(c.Name, "ufw-") })
	for _, c := range chains {
		own := c.Table.Name == dropTable || strings.HasPrefix(c.Table.Name, "flannel-ipv")
		if c.Hooknum == nil || own || c.Type != nftables.ChainTypeFilter || families[c.Table.Family] == "" ||
			hooks[*c.Hooknum] == "" {
			continue
		}
		s := Suspect{Hook: hooks[*c.Hooknum], Table: families[c.Table.Family] + c.Table.Name, Chain: c.Name,
			IPv6: c.Table.Family == nftables.TableFamilyIPv6}
		policy := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		switch {
		case c.Table.Name == "firewalld" && s.Hook != "output": // whose zones reject by rules
			s.Owner = "firewalld"
		case ufw && c.Table.Name == "filter":
			s.Owner = "ufw"
		}
		suspects := []Suspect{s}
		if s.Owner != "firewalld" {
			rules, _ := conn.GetRules(c.Table, c) // an error: the chain has gone meanwhile
			suspects = s.among(seenInNFT(rules), policy)
		}
		for _, x := range suspects {
			if x.Owner == "" || !slices.ContainsFunc(found, func(y Suspect) bool {
				return x.Owner == y.Owner && x.Hook == y.Hook
			}) {
				found = append(found, x)
			}
		}
	}
	for _, six := range []bool{false, true} {
		tables, err := (&iptables{ipv6: six, kind: kindIptablesLegacy}).read(ctx, "-c")
		if err != nil {
			return found, err
		}
		filter := tables["filter"]
		for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
			x := Suspect{Hook: strings.ToLower(chain), Table: "filter (legacy iptables)", Chain: chain, IPv6: six,
				Legacy: true}
			some := x.among(seenInLegacy(filter, chain), slices.Contains(filter.drops, chain))
			if len(some) == 0 || some[0].Rule == 0 {
				if x.Some = filter.dropping(chain); x.Some > 0 && x.Hook != "forward" {
					some = append([]Suspect{x}, some...)
				}
			}
			found = append(found, some...)
		}
	}
	return found, nil
}

// seen is what matters of a rule of somebody's.
type seen struct {
	drops, all bool // it drops or rejects; whatever comes to it
	packets    uint64
	next       string // the chain that it leads to
}

// among returns what drops in a chain with these rules, and with a policy that drops: the first rule that
// drops every packet, or else the first that has dropped any; and the policy unless nothing comes to it.
func (s Suspect) among(rules []seen, policy bool) (found []Suspect) {
	at := slices.IndexFunc(rules, func(r seen) bool { return r.drops && r.all })
	if at < 0 {
		at = slices.IndexFunc(rules, func(r seen) bool { return r.drops && r.packets > 0 })
	}
	accepts := slices.IndexFunc(rules, func(r seen) bool { return r.next == chainAccept })
	s.Ahead = accepts < 0 && s.Legacy && s.Hook == "forward"
	if at >= 0 {
		r := s
		r.Rule, r.Ahead = at+1, s.Ahead || accepts > at
		if rules[at].all {
			// a rule that does not drop accepts, or may, as a verdict map does
			r.Sure = !slices.ContainsFunc(rules[:at], func(r seen) bool { return !r.drops })
			policy = false
		} else {
			r.Dropped = rules[at].packets
		}
		r.Owner = ""
		found = append(found, r)
	}
	if policy {
		found = append(found, s)
	}
	return found
}

func seenInNFT(rules []*nftables.Rule) (out []seen) {
	for _, r := range rules {
		s := seen{all: true}
		for _, e := range r.Exprs {
			switch e := e.(type) {
			case *expr.Log:
			case *expr.Counter:
				s.packets = e.Packets
			case *expr.Match:
				s.all = s.all && e.Name == "comment"
			case *expr.Verdict:
				s.drops, s.next = e.Kind == expr.VerdictDrop, e.Chain
			case *expr.Reject:
				s.drops = true
			case *expr.Target:
				s.drops = e.Name == "REJECT"
			default:
				s.all = false
			}
		}
		out = append(out, s)
	}
	return out
}

// unconditional matches a rule of iptables-save that looks at nothing.
var unconditional = regexp.MustCompile(`^(-m comment --comment ("([^"\\]|\\.)*"|\S+) )?-j `)

func seenInLegacy(t saved, chain string) (out []seen) {
	for i, r := range t.rules[chain] {
		out = append(out, seen{discards(r), unconditional.MatchString(r), t.packets[chain][i], target(r)})
	}
	return out
}

func discards(rule string) bool { return target(rule) == "DROP" || target(rule) == "REJECT" }

// dropping counts the rules that drop in a chain, and in those that it leads to.
func (s saved) dropping(chain string) (n int) {
	chains := []string{chain}
	for i := 0; i < len(chains); i++ {
		for _, r := range s.rules[chains[i]] {
			if discards(r) {
				n++
			} else if to := target(r); !slices.Contains(chains, to) {
				chains = append(chains, to)
			}
		}
	}
	return n
}
