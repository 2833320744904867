package hostrules

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// RemoveOptions say what Remove removes.
type RemoveOptions struct {
	// DryRun only says what there is.
	DryRun bool
	// Flannel also removes what has flannel's names and no mark of ours.
	Flannel bool
	// Port removes only the rules that drop, which a flannel that takes over does not know and would leave in
	// place. The rules that masquerade and accept stay, so that packets go on, but those in iptables for which a
	// living flannel has its own.
	Port bool
	// Networks are those whose rules go: another network's on this host stay. Without any, all go.
	Networks []netip.Prefix
}

func (o RemoveOptions) scope() scope {
	if len(o.Networks) == 0 {
		return scope{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	return o.Networks
}

// Remove removes every rule of ours, in all firewalls of both families. It returns a line for each object
// that it removed or, in a dry run, would remove. It is no error if it is gone already.
func Remove(ctx context.Context, o RemoveOptions) (removed []string, err error) {
	lines, err := removeDropTable(o)
	faults := []error{err}
	removed = append(removed, lines...)
	for _, six := range []bool{false, true} {
		lines, err := (&flannelTable{ipv6: six}).remove(o)
		removed, faults = append(removed, lines...), append(faults, err)
		for _, k := range []kind{kindIptablesNFT, kindIptablesLegacy} {
			lines, err := (&iptables{ipv6: six, kind: k}).remove(ctx, o)
			if errors.Is(err, errNoTools) && k == kindIptablesNFT {
				err = nil // tables by these names may be somebody else's
			}
			removed, faults = append(removed, lines...), append(faults, err)
		}
	}
	return removed, errors.Join(faults...)
}

// OtherNetworks lists networks of weft that have rules on this host and are not among ours.
func OtherNetworks(ours []netip.Prefix) (others []string) {
	c, err := connect()
	if err != nil {
		return nil
	}
	chains, _ := c.ListChainsOfTableFamily(nftables.TableFamilyINet) // without an answer there is nothing to say
	for _, ch := range chains {
		if p, ok := labelled(ch.Name); ok && ch.Table.Name == dropTable && len(ours) > 0 && !scope(ours).has(p) {
			others = append(others, p.String())
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

func removeDropTable(o RemoveOptions) (lines []string, err error) {
	have, err := readDrops(o.scope())
	if errors.Is(err, errNoNFTables) || err == nil && len(have.chains)+len(have.sets) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range have.chains {
		lines = append(lines, fmt.Sprintf("nftables table inet %s: chain %s", dropTable, name))
	}
	if o.DryRun {
		return lines, nil
	}
	c, err := connect()
	if err != nil {
		return nil, err
	}
	removeDrops(c, have, true)
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("nftables table inet %s: %w", dropTable, err)
	}
	return lines, nil
}

// remove removes the rules of ours, and the table if nothing else is in it.
func (f *flannelTable) remove(o RemoveOptions) (lines []string, err error) {
	s := o.scope()
	exists, have, _, err := f.read(s)
	if errors.Is(err, errNoNFTables) || err == nil && !exists {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if o.Port { // nothing here drops
		return nil, nil
	}
	gone := func(r *nftables.Rule) bool {
		if isMarked(string(r.UserData)) {
			return !s.others(r)
		}
		return o.Flannel
	}
	rest := false
	var chains []heldChain // in which something goes
	for _, h := range have {
		n := 0
		for _, r := range h.rules {
			if gone(r) {
				n++
			}
		}
		switch {
		case n == 0 && (len(h.rules) > 0 || !o.Flannel):
			rest = true
			continue
		case n < len(h.rules):
			rest = true
		}
		chains = append(chains, h)
		lines = append(lines, fmt.Sprintf("nftables table %s: chain %s, %d rules", f.name(), h.name, n))
	}
	whole := !rest && (len(lines) > 0 || o.Flannel)
	if whole {
		lines = []string{"nftables table " + f.name()}
	}
	if o.DryRun || len(lines) == 0 {
		return lines, nil
	}
	c, err := connect()
	if err != nil {
		return nil, err
	}
	if whole {
		c.DelTable(f.table())
	} else if err := removeRules(c, f.table(), chains, gone); err != nil {
		return nil, err
	}
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("nftables table %s: %w", f.name(), err)
	}
	return lines, nil
}

// remove removes what place.removal says from each table.
func (i *iptables) remove(ctx context.Context, o RemoveOptions) (lines []string, err error) {
	tables, err := i.read(ctx)
	if err != nil || tables == nil {
		return nil, err
	}
	var faults []error
	for _, p := range places() {
		plan := p.removal(tables[p.table], o)
		if plan.payload != "" && !o.DryRun {
			t, err := i.find(ctx)
			if err == nil {
				err = i.restore(ctx, t, plan.payload)
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("%s, table %s: %w", i.name(), p.table, err))
				continue
			}
		}
		for _, line := range plan.lines {
			lines = append(lines, fmt.Sprintf("%s: table %s: %s", i.name(), p.table, line))
		}
	}
	return lines, errors.Join(faults...)
}
