package hostrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// flannelTable is flannel's table of nftables for one family. Networks share its two chains: the comment of
// each of our rules ends with its network.
type flannelTable struct {
	ipv6 bool
	done []nftChain
	mark string // how the kernel showed it after the last success
}

func (f *flannelTable) name() string {
	if f.ipv6 {
		return "flannel-ipv6"
	}
	return "flannel-ipv4"
}

func (f *flannelTable) table() *nftables.Table {
	family := nftables.TableFamilyIPv4
	if f.ipv6 {
		family = nftables.TableFamilyIPv6
	}
	return &nftables.Table{Name: f.name(), Family: family}
}

// flannelChains are the rules of a family for nftables.
func flannelChains(w familyRules) []nftChain {
	return slices.DeleteFunc([]nftChain{
		{"forward", hook{nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter},
			w.forward},
		{"postrtg", hook{nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource},
			w.masquerade},
	}, func(c nftChain) bool { return len(c.rules) == 0 })
}

// heldChain is a chain of a table with its rules.
type heldChain struct {
	name  string
	rules []*nftables.Rule
}

// read reads the table. mark has what others than another network may have changed.
func (f *flannelTable) read(s scope) (exists bool, chains []heldChain, mark string, err error) {
	c, err := connect()
	if err != nil {
		return false, nil, "", absent(err)
	}
	t := f.table()
	tables, err := c.ListTablesOfFamily(t.Family)
	if err != nil {
		return false, nil, "", absent(err)
	}
	i := slices.IndexFunc(tables, func(x *nftables.Table) bool { return x.Name == t.Name })
	if i < 0 {
		return false, nil, "", nil
	}
	all, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return true, nil, "", err
	}
	var w strings.Builder
	fmt.Fprintln(&w, tables[i].Flags)
	for _, ch := range all {
		if ch.Table.Name != t.Name {
			continue
		}
		rules, err := c.GetRules(t, ch)
		if err != nil {
			return true, nil, "", fmt.Errorf("rules of chain %s: %w", ch.Name, err)
		}
		chains = append(chains, heldChain{ch.Name, rules})
		if ch.Hooknum != nil {
			fmt.Fprintln(&w, ch.Name, *ch.Hooknum, *ch.Priority, *ch.Policy)
		}
		for _, r := range rules {
			if !s.others(r) {
				fmt.Fprintln(&w, ch.Name, r.Handle)
			}
		}
	}
	return true, chains, w.String(), nil
}

// others reports whether a rule is another network's.
func (s scope) others(r *nftables.Rule) bool {
	for _, c := range []string{commentMasquerade, commentForward} {
		if _, rest, ok := strings.Cut(string(r.UserData), c+" "); ok {
			p, err := netip.ParsePrefix(strings.TrimRight(rest, "\x00"))
			return err == nil && !s.has(p)
		}
	}
	return false
}

// sync makes the table as wanted, in one transaction: what no other network has goes, and ours is added.
func (f *flannelTable) sync(s scope, network netip.Prefix, want familyRules) (wrote, repaired bool,
	err error) {
	chains := flannelChains(want)
	exists, have, mark, err := f.read(s)
	if err != nil && exists {
		mark, have = "unreadable", nil
	} else if err != nil {
		return false, false, err
	}
	known, same := f.mark != "", equalChains(f.done, chains)
	if known && same && mark == f.mark || len(chains) == 0 && !exists {
		return false, false, nil
	}
	notOthers := func(r *nftables.Rule) bool { return !s.others(r) }
	shared, ours := false, false
	for _, h := range have {
		alone := !slices.ContainsFunc(h.rules, s.others)
		shared, ours = shared || !alone, ours || alone || slices.ContainsFunc(h.rules, notOthers)
	}
	if len(chains) == 0 && shared && !ours {
		return false, false, nil
	}
	c, err := connect()
	if err != nil {
		return false, false, absent(err)
	}
	t := f.table()
	c.AddTable(t)
	if shared {
		if err := removeRules(c, t, have, notOthers); err != nil {
			return false, false, err
		}
	} else {
		c.DelTable(t)
		if len(chains) > 0 {
			c.AddTable(t)
		}
	}
	for _, ch := range chains {
		addChain(c, t, ch.name, ch.hook)
		for _, r := range ch.rules {
			addRule(c, t, ch.name, r.nft(nil, want.randomFully), r.comment+" "+network.Masked().String())
		}
	}
	if err := absent(c.Flush()); err != nil { // nothing is written, and mark still says what there was
		return false, false, fmt.Errorf("nftables table %s: %w", f.name(), err)
	}
	if _, _, mark, err = f.read(s); err != nil {
		return true, false, err
	}
	f.done, f.mark = chains, mark
	return true, known && same, nil
}

// removeRules deletes those rules that go, and the chains that have no other.
func removeRules(c *nftables.Conn, t *nftables.Table, have []heldChain,
	gone func(*nftables.Rule) bool) error {
	var empty []*nftables.Chain
	for _, h := range have {
		chain := &nftables.Chain{Name: h.name, Table: t}
		if !slices.ContainsFunc(h.rules, func(r *nftables.Rule) bool { return !gone(r) }) {
			c.FlushChain(chain)
			empty = append(empty, chain)
			continue
		}
		for _, r := range h.rules {
			if gone(r) {
				if err := c.DelRule(&nftables.Rule{Table: t, Chain: chain, Handle: r.Handle}); err != nil {
					return err
				}
			}
		}
	}
	for _, chain := range empty {
		c.DelChain(chain)
	}
	return nil
}

func equalChains(a, b []nftChain) bool {
	return slices.EqualFunc(a, b, func(x, y nftChain) bool {
		return x.name == y.name && slices.Equal(x.rules, y.rules)
	})
}
