package hostrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// RemoveOptions say what Remove takes away.
type RemoveOptions struct {
	// DryRun only says what there is.
	DryRun bool
	// Flannel also takes what has flannel's names and no mark of ours.
	Flannel bool
}

// Remove takes every rule of ours away, in all firewalls of both families. It returns a line
// for each object that it removed or, in a dry run, would remove. What is gone already is no error.
func Remove(ctx context.Context, o RemoveOptions) (removed []string, err error) {
	var faults []error
	for _, s := range newSides() {
		lines, err := removeSide(ctx, s, o)
		removed = append(removed, lines...)
		if err != nil {
			faults = append(faults, err)
		}
	}
	return removed, errors.Join(faults...)
}

func removeSide(ctx context.Context, s *side, o RemoveOptions) ([]string, error) {
	v, err := s.look()
	if err != nil || v.own == "" {
		return nil, err
	}
	var lines []string
	switch f := s.firewall.(type) {
	case nft:
		marked, err := f.marked()
		if err != nil || !marked && !o.Flannel {
			return nil, err
		}
		lines = []string{f.name()}
	case *iptables:
		var marked bool
		if lines, marked, err = f.describe(ctx); err != nil || !marked && !o.Flannel {
			return nil, err
		}
	}
	if o.DryRun {
		return lines, nil
	}
	if _, err := s.apply(ctx, familyRules{ipv6: s.ipv6}); err != nil {
		return nil, err
	}
	return lines, nil
}

// marked reports whether the table has a chain that only we use, or a rule with our mark.
func (n nft) marked() (bool, error) {
	chains, err := nfChains(nfFamily(n.ipv6))
	if err != nil {
		return false, err
	}
	for _, c := range chains {
		if c.table != n.table() {
			continue
		}
		if c.name == nftPortInput || c.name == nftPortOut { // flannel has none of these
			return true, nil
		}
		rules, err := nfRules(c.family, c.table, c.name)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(rules, nfRule.marked) {
			return true, nil
		}
	}
	return false, nil
}

// describe lists what of ours the tables have, and whether any of it is marked.
func (i *iptables) describe(ctx context.Context) (lines []string, marked bool, err error) {
	t, err := i.find(ctx)
	if err != nil {
		return nil, false, err
	}
	there, err := i.tables()
	if err != nil {
		return nil, false, err
	}
	for _, name := range iptablesTables() {
		if !slices.Contains(there, name) {
			continue
		}
		have, err := i.save(ctx, t, name)
		if err != nil {
			return nil, false, fmt.Errorf("%s, table %s: %w", i.name(), name, err)
		}
		lines = append(lines, have.describe(i.name(), name)...)
		marked = marked || have.marked()
	}
	return lines, marked, nil
}
