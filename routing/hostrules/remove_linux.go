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
	drops, flannels := newTables(o.scope(), nil, false)
	lines, err := drops.clear(o)
	faults := []error{err}
	removed = append(removed, lines...)
	for i, six := range []bool{false, true} {
		lines, err := flannels[i].clear(o)
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

// clear removes what the table has of ours, and of flannel's if o says so.
func (t *table) clear(o RemoveOptions) (lines []string, err error) {
	have, err := t.read()
	if errors.Is(err, errNoNFTables) || err == nil && !have.table {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lives := len(have.flannel) > len(have.marked)
	switch {
	case t.Name == dropTable:
	case o.Port && !lives: // nothing here drops, and no flannel has rules of its own
		return nil, nil
	case o.Flannel && !o.Port:
		have.chains = append(have.chains, have.flannel...)
		if len(have.chains) == 0 && !have.other {
			lines = []string{t.String()}
		}
	default:
		have.shared = slices.DeleteFunc(have.shared, func(r *nftables.Rule) bool {
			return !isMarked(string(r.UserData))
		})
		have.chains, have.other = append(have.chains, have.marked...), have.other || lives
	}
	for _, name := range have.chains {
		lines = append(lines, fmt.Sprintf("%v: chain %s", t, name))
	}
	for _, r := range have.shared {
		lines = append(lines, fmt.Sprintf("%v: rule in chain %s", t, r.Chain.Name))
	}
	if o.DryRun || len(lines) == 0 {
		return lines, nil
	}
	c, err := connect()
	if err != nil {
		return nil, err
	}
	if err := t.remove(c, have, true); err != nil {
		return nil, err
	}
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
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
		change, said := p.removal(tables[p.table], o)
		if len(change) > 0 && !o.DryRun {
			t, err := i.find(ctx)
			if err == nil {
				err = i.restore(ctx, t, restoring(p.table, change))
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("%v, table %s: %w", i, p.table, err))
				continue
			}
		}
		for _, line := range said {
			lines = append(lines, fmt.Sprintf("%v: table %s: %s", i, p.table, line))
		}
	}
	return lines, errors.Join(faults...)
}
