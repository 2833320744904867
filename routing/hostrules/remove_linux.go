package hostrules

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
)

// RemoveOptions say what Remove removes.
type RemoveOptions struct {
	// DryRun only says what there is.
	DryRun bool
	// Flannel also removes what has flannel's names and no mark of ours.
	Flannel bool
	// Port removes only the rules that drop: those about the overlay's port, which forbid it to pods, and the kernel's
	// vxlan to all but the peers that were known last, and those of a Seal. A flannel that takes over does not know
	// them and would leave them in place. The rules that masquerade and accept stay, so that packets go on, but those in iptables for
	// which a living flannel has its own.
	Port bool
}

// Remove removes every rule of ours, in all firewalls of both families. It returns a line for
// each object that it removed or, in a dry run, would remove. What is gone already is no error.
func Remove(ctx context.Context, o RemoveOptions) (removed []string, err error) {
	var faults []error
	for _, s := range newSides() {
		v, err := s.inspect()
		if err != nil {
			faults = append(faults, err)
		}
		if err != nil || v.own == "" {
			continue
		}
		var lines []string
		switch f := s.firewall.(type) {
		case nft:
			lines, err = f.remove(o)
		case *iptables:
			lines, err = f.remove(ctx, o)
		}
		removed = append(removed, lines...)
		faults = append(faults, err)
	}
	return removed, errors.Join(faults...)
}

// remove removes the table if all in it is ours, else those chains and rules that are.
func (n nft) remove(o RemoveOptions) (lines []string, err error) {
	family := nfFamily(n.ipv6)
	chains, err := nfChains(family)
	if err != nil {
		return nil, err
	}
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	t := &nftables.Table{Family: nftables.TableFamily(family), Name: n.table()}
	rest := false // something of somebody else's
	for _, ch := range chains {
		if ch.table != n.table() || ch.family != family {
			continue
		}
		ours := slices.Contains([]string{nftPortInput, nftPortOut, nftSealedIn, nftSealedOut}, ch.name) // and never flannel's
		if o.Port && !ours {
			rest = true
			continue
		}
		rules, err := nfRules(family, ch.table, ch.name)
		if err != nil {
			return nil, err
		}
		chain := &nftables.Chain{Name: ch.name, Table: t}
		marked := slices.DeleteFunc(slices.Clone(rules), func(r nfRule) bool { return !r.marked() })
		if len(marked) == len(rules) && (len(rules) > 0 || ours) {
			lines = append(lines, fmt.Sprintf("%s: chain %s, %d rules", n.name(), ch.name, len(rules)))
			c.FlushChain(chain)
			c.DelChain(chain)
			continue
		}
		rest = true
		for _, r := range marked {
			lines = append(lines, fmt.Sprintf("%s: rule %d of chain %s", n.name(), r.handle, ch.name))
			if err := c.DelRule(&nftables.Rule{Table: t, Chain: chain, Handle: r.handle}); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case o.Flannel && !o.Port, !rest && len(lines) > 0:
		if c, err = nftables.New(); err != nil {
			return nil, fmt.Errorf("nftables: %w", err)
		}
		lines = []string{n.name()}
		c.DelTable(t)
	case len(lines) == 0:
		return nil, nil
	default:
		if err := n.dropPeers(c, t); err != nil {
			return nil, err
		}
	}
	if o.DryRun {
		return lines, nil
	}
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name(), err)
	}
	return lines, nil
}

// dropPeers removes the set of peers, if it is there: flannel has none.
func (n nft) dropPeers(c *nftables.Conn, t *nftables.Table) error {
	sets, err := c.GetSets(t)
	if err != nil {
		return fmt.Errorf("%s: list its sets: %w", n.name(), err)
	}
	for _, s := range sets {
		if s.Name == nftPeersSet {
			c.DelSet(s)
		}
	}
	return nil
}

// remove removes from each table what planRemoval says, or planTakenOver.
func (i *iptables) remove(ctx context.Context, o RemoveOptions) (lines []string, err error) {
	t, err := i.find(ctx)
	if err != nil {
		return nil, err
	}
	there, err := i.tables()
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, name := range iptablesTables() {
		if !slices.Contains(there, name) {
			continue // reading a legacy table by name would make it
		}
		have, err := i.save(ctx, t, name)
		if err == nil {
			r := planRemoval(i.name(), name, have, o.Flannel && !o.Port)
			if o.Port && name != tablePort {
				r = planTakenOver(i.name(), name, have)
			}
			if r.payload != "" && !o.DryRun {
				err = i.restore(ctx, t, r.payload)
			}
			if err == nil {
				lines = append(lines, r.lines...)
			}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s, table %s: %w", i.name(), name, err))
		}
	}
	return lines, errors.Join(faults...)
}
