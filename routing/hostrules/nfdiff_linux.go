package hostrules

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// This file finds what differs between our table of nftables in the kernel and what it should be, and writes only that. What stays
// keeps its handle and its counters.

// nftRule is a rule as it should be.
type nftRule struct {
	exprs   []expr.Any
	comment []byte
	form    string // to compare
}

// nftChain is a chain as it should be.
type nftChain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    []nftRule
}

// is reports whether the kernel's chain is hooked in where c should be.
func (c nftChain) is(h nfChain) bool {
	return h.base && h.hook == uint32(*c.hook) && h.priority == int32(*c.priority) && h.filter == string(c.kind) && h.flags == 0
}

// nftPlan is our table as it should be.
type nftPlan struct {
	table  *nftables.Table
	chains []nftChain
	set    *nftables.Set // of peers; nil if no rule asks for it
	peers  []netip.Addr
}

// plan renders f for nftables.
func (n nft) plan(f familyRules) (nftPlan, error) {
	p := nftPlan{table: &nftables.Table{Family: nftables.TableFamily(nfFamily(n.ipv6)), Name: n.table()}}
	if f.peersInput != nil || f.toPeers() {
		p.set, p.peers = &nftables.Set{Table: p.table, Name: nftPeersSet, KeyType: nftables.TypeIPAddr}, f.peers
		if n.ipv6 {
			p.set.KeyType = nftables.TypeIP6Addr
		}
	}
	for _, ch := range []struct {
		nftChain
		rules []rule
	}{
		{nftChain{nftPortInput, nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityMangle, nil}, f.portInput()},
		{nftChain{nftPortOut, nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityMangle, nil}, f.podsForward},
		{nftChain{nftSealedIn, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle, nil}, f.sealedIn},
		{nftChain{nftSealedOut, nftables.ChainTypeFilter, nftables.ChainHookPostrouting, nftables.ChainPriorityMangle, nil}, f.sealedOut},
		{nftChain{nftForward, nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, nil}, f.forward},
		{nftChain{nftMasquerade, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, nil}, f.masquerade},
	} {
		if ch.rules == nil {
			continue
		}
		for _, r := range ch.rules {
			w := nftRule{exprs: r.nft(f), comment: userdata.AppendString(nil, userdata.TypeComment, r.comment)}
			var err error
			if w.form, err = formOfWritten(nfFamily(n.ipv6), w.exprs, w.comment); err != nil {
				return p, err
			}
			ch.nftChain.rules = append(ch.nftChain.rules, w)
		}
		p.chains = append(p.chains, ch.nftChain)
	}
	return p, nil
}

// whole has the kernel make the table anew, whatever it is.
func (p nftPlan) whole(c *nftables.Conn) error {
	c.AddTable(p.table) // so that it can be deleted, whether it was there or not
	c.DelTable(p.table)
	if len(p.chains) == 0 {
		return nil
	}
	c.AddTable(p.table)
	return p.fill(c)
}

// fill adds everything to a table that is empty.
func (p nftPlan) fill(c *nftables.Conn) error {
	if p.set != nil {
		if err := p.addSet(c); err != nil {
			return err
		}
	}
	for _, ch := range p.chains {
		p.addChain(c, ch)
		for _, r := range ch.rules {
			p.addRule(c, ch.name, r, 0)
		}
	}
	return nil
}

func (p nftPlan) addSet(c *nftables.Conn) error {
	if err := c.AddSet(p.set, nil); err != nil {
		return fmt.Errorf("nftables set %s: %w", nftPeersSet, err)
	}
	return p.elements(c.SetAddElements, p.peers)
}

// elementsAtOnce bounds the elements of one message, whose length has 16 bits.
const elementsAtOnce = 1000

// elements adds or deletes elements of the set.
func (p nftPlan) elements(change func(*nftables.Set, []nftables.SetElement) error, as []netip.Addr) error {
	for some := range slices.Chunk(as, elementsAtOnce) {
		es := make([]nftables.SetElement, len(some))
		for i, a := range some {
			es[i].Key = a.AsSlice()
		}
		if err := change(p.set, es); err != nil {
			return fmt.Errorf("nftables set %s: %w", nftPeersSet, err)
		}
	}
	return nil
}

// addChain adds a chain, or gives one that is there its policy back.
func (p nftPlan) addChain(c *nftables.Conn, ch nftChain) {
	accept := nftables.ChainPolicyAccept
	c.AddChain(&nftables.Chain{Name: ch.name, Table: p.table, Type: ch.kind, Hooknum: ch.hook, Priority: ch.priority, Policy: &accept})
}

// addRule adds a rule in front of the one with a handle; 0 for the chain's end.
func (p nftPlan) addRule(c *nftables.Conn, chain string, r nftRule, before uint64) {
	w := &nftables.Rule{Table: p.table, Chain: &nftables.Chain{Name: chain, Table: p.table}, Exprs: r.exprs, UserData: r.comment, Position: before}
	if before == 0 {
		c.AddRule(w)
		return
	}
	c.InsertRule(w)
}

// change has the kernel make a table that is there as planned, and returns how many messages that takes; 0 if it is so already.
// ok is false if that needs the whole table made anew.
func (p nftPlan) change(c *nftables.Conn, have nftOwn) (steps int, ok bool, err error) {
	if have.flags != 0 || p.set != nil && have.set != nil && !have.set.plain(p.set) {
		return 0, false, nil
	}
	steps, err = p.changeSet(c, have)
	if err != nil {
		return steps, true, err
	}
	// What goes, goes first: a rule may lead to a chain that goes too.
	var gone []*nftables.Chain
	for _, h := range have.chains {
		chain := &nftables.Chain{Name: h.name, Table: p.table}
		i := slices.IndexFunc(p.chains, func(ch nftChain) bool { return ch.name == h.name })
		if i < 0 || !p.chains[i].is(h.nfChain) {
			c.FlushChain(chain)
			gone = append(gone, chain)
			steps += 2
			continue
		}
		for _, r := range without(h.rules, kept(h.rules, p.chains[i].rules)) {
			if err := c.DelRule(&nftables.Rule{Table: p.table, Chain: chain, Handle: r.handle}); err != nil {
				return steps, true, err
			}
			steps++
		}
	}
	for _, chain := range gone {
		c.DelChain(chain)
	}
	for _, ch := range p.chains {
		i := slices.IndexFunc(have.chains, func(h nftHeld) bool { return h.name == ch.name && ch.is(h.nfChain) })
		if i < 0 || have.chains[i].drop {
			p.addChain(c, ch)
			steps++
		}
		var held []nfRule
		if i >= 0 {
			held = have.chains[i].rules
		}
		steps += p.addMissing(c, ch, kept(held, ch.rules))
	}
	if p.set == nil && have.set != nil {
		c.DelSet(&nftables.Set{Table: p.table, Name: nftPeersSet})
		steps++
	}
	return steps, true, nil
}

// changeSet makes the set's elements as planned.
func (p nftPlan) changeSet(c *nftables.Conn, have nftOwn) (steps int, err error) {
	switch {
	case p.set == nil:
		return 0, nil
	case have.set == nil:
		return 1, p.addSet(c)
	}
	there := make(map[netip.Addr]bool, len(have.set.keys))
	for _, k := range have.set.keys {
		a, _ := netip.AddrFromSlice([]byte(k)) // the set's key is an address
		there[a] = true
	}
	var missing []netip.Addr
	for _, a := range p.peers {
		if !there[a] {
			missing = append(missing, a)
		}
		delete(there, a)
	}
	var gone []netip.Addr
	for a := range there {
		gone = append(gone, a)
	}
	if err := p.elements(c.SetDeleteElements, gone); err != nil {
		return 0, err
	}
	return len(gone) + len(missing), p.elements(c.SetAddElements, missing)
}

// addMissing adds the rules of a chain that are not among those that stay, each in its place.
func (p nftPlan) addMissing(c *nftables.Conn, ch nftChain, stay []pair) (steps int) {
	for i, r := range ch.rules {
		if len(stay) > 0 && stay[0].want == i {
			stay = stay[1:]
			continue
		}
		before := uint64(0)
		if len(stay) > 0 {
			before = stay[0].handle
		}
		p.addRule(c, ch.name, r, before)
		steps++
	}
	return steps
}

// pair is a rule that stays: its handle, and its index among those that should be there.
type pair struct {
	handle uint64
	want   int
}

// kept finds the rules that can stay as they are: as many as possible that are in both lists in the same order.
func kept(have []nfRule, want []nftRule) []pair {
	forms := make([]string, len(have))
	for i, r := range have {
		forms[i] = formOf(r.expressions, r.comment)
	}
	// Those at both ends are most of them, or all.
	var head, tail []pair
	for len(have) > 0 && len(want) > len(head) && forms[0] == want[len(head)].form {
		head = append(head, pair{have[0].handle, len(head)})
		have, forms = have[1:], forms[1:]
	}
	first := len(head)
	want = want[first:]
	for len(have) > 0 && len(want) > 0 && forms[len(have)-1] == want[len(want)-1].form {
		tail = append(tail, pair{have[len(have)-1].handle, first + len(want) - 1})
		have, want = have[:len(have)-1], want[:len(want)-1]
	}
	// The longest common subsequence of what is between.
	length := make([][]int, len(have)+1)
	for i := range length {
		length[i] = make([]int, len(want)+1)
	}
	for i := len(have) - 1; i >= 0; i-- {
		for j := len(want) - 1; j >= 0; j-- {
			if length[i][j] = max(length[i+1][j], length[i][j+1]); forms[i] == want[j].form {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(have) && j < len(want); {
		switch {
		case forms[i] == want[j].form:
			head = append(head, pair{have[i].handle, first + j})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	slices.Reverse(tail)
	return append(head, tail...)
}

// without returns those rules that are not among the ones that stay.
func without(have []nfRule, stay []pair) []nfRule {
	return slices.DeleteFunc(slices.Clone(have), func(r nfRule) bool {
		return slices.ContainsFunc(stay, func(p pair) bool { return p.handle == r.handle })
	})
}
