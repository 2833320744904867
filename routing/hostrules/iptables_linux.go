package hostrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// iptables is one flavour of iptables, for one family. It is written with iptables-restore, and read
// from the kernel.
type iptables struct {
	ipv6 bool
	kind kind
	// tools is nil until the programs are found; each use looks for them again.
	tools *tools
}

func (i *iptables) name() string {
	family := "IPv4"
	if i.ipv6 {
		family = "IPv6"
	}
	return i.kind.String() + ", " + family
}

func (i *iptables) inspect() (view, error) {
	if i.kind == kindIptablesLegacy {
		return i.inspectLegacy()
	}
	return i.inspectNFT()
}

func (i *iptables) inspectLegacy() (view, error) {
	there, err := legacyTables(i.ipv6)
	if err != nil {
		return view{}, err
	}
	var v view
	for _, name := range iptablesTables() {
		if !slices.Contains(there, name) {
			continue
		}
		t, err := readLegacy(name, i.ipv6)
		if err != nil {
			return view{}, err
		}
		if own := t.ownText(); own != "" {
			v.own += "*" + name + "\n" + own
		}
		v.forwardDrops = v.forwardDrops || name == "filter" && t.policyDrop["FORWARD"]
		for chain, n := range t.dropped {
			v.dropped = v.dropped.plus(droppedBy(chain, n))
		}
	}
	return v, nil
}

// droppedBy is n packets that a chain of iptables dropped.
func droppedBy(chain string, n uint64) Dropped {
	switch chain {
	case chainStrangers:
		return Dropped{Strangers: n}
	case chainSealedIn, chainSealedOut:
		return Dropped{Plain: n}
	}
	return Dropped{Pods: n}
}

func (i *iptables) inspectNFT() (view, error) {
	chains, err := nfChains(nfFamily(i.ipv6))
	if errors.Is(err, errNoNFTables) {
		return view{}, nil
	}
	if err != nil {
		return view{}, err
	}
	var v view
	var w strings.Builder
	for _, c := range chains {
		if c.family != nfFamily(i.ipv6) || !slices.Contains(iptablesTables(), c.table) || !c.base && !ownsChain(c.table, c.name) {
			continue
		}
		if c.table == "filter" && c.name == "FORWARD" && c.drop {
			v.forwardDrops = true
		}
		rules, err := nfRules(c.family, c.table, c.name)
		if err != nil {
			return view{}, err
		}
		if ownsChain(c.table, c.name) {
			fmt.Fprintf(&w, "%s %s %d\n", c.table, c.name, c.handle)
		}
		for _, r := range rules {
			if ownsChain(c.table, c.name) || ownsChain(c.table, r.to) {
				fmt.Fprintf(&w, "%s %s %d %s\n", c.table, c.name, r.handle, r.to)
			}
			if ownsChain(c.table, c.name) && r.verdict == nfDrop {
				v.dropped = v.dropped.plus(droppedBy(c.name, r.packets))
			}
		}
	}
	v.own = w.String()
	return v, nil
}

// chainsOf lists all chains, so that chooseFlavour can tell which flavour others use.
func (i *iptables) chainsOf() ([]string, error) {
	var names []string
	if i.kind == kindIptablesNFT {
		chains, err := nfChains(nfFamily(i.ipv6))
		for _, c := range chains {
			if slices.Contains(iptablesTables(), c.table) && c.family == nfFamily(i.ipv6) {
				names = append(names, c.name)
			}
		}
		return names, err
	}
	there, err := legacyTables(i.ipv6)
	if err != nil {
		return nil, err
	}
	for _, name := range iptablesTables() {
		if slices.Contains(there, name) {
			t, err := readLegacy(name, i.ipv6)
			if err != nil {
				return nil, err
			}
			names = append(names, t.chains...)
		}
	}
	return names, nil
}

func (i *iptables) find(ctx context.Context) (tools, error) {
	if i.tools == nil {
		t, err := findTools(ctx, i.kind, i.ipv6)
		if err != nil {
			return tools{}, err
		}
		i.tools = &t
	}
	return *i.tools, nil
}

// generation returns the generation of all of nftables, or 0 for the legacy flavour, which has none.
func (i *iptables) generation() (uint32, error) {
	if i.kind == kindIptablesLegacy {
		return 0, nil
	}
	return nfGeneration()
}

func (i *iptables) apply(ctx context.Context, want familyRules) (transactions int, err error) {
	t, err := i.find(ctx)
	if err != nil {
		return 0, err
	}
	want.randomFully = want.randomFully && t.randomFully
	rules := iptablesRules(want)
	there, err := i.tables()
	if err != nil {
		return 0, err
	}
	var faults []error
	payloads, all := map[string]string{}, ""
	for _, name := range iptablesTables() {
		if rules[name].empty() && !slices.Contains(there, name) {
			continue // reading a legacy table by name would make it
		}
		have, err := i.save(ctx, t, name)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s, table %s: %w", i.name(), name, err))
			continue
		}
		if p := restorePayload(name, have, rules[name]); p != "" {
			payloads[name], all = p, all+p
		}
	}
	if all == "" || i.restore(ctx, t, all) == nil {
		return len(payloads), errors.Join(faults...)
	}
	// One of the tables cannot be changed. Those before it were, those behind it were not: each is looked at again, since what was written for it
	// deletes and adds single rules, and does so once more if it is written twice.
	for _, name := range iptablesTables() {
		if payloads[name] == "" {
			continue
		}
		have, err := i.save(ctx, t, name)
		if err == nil {
			if p := restorePayload(name, have, rules[name]); p != "" {
				err = i.restore(ctx, t, p)
			}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s, table %s: %w", i.name(), name, err))
			continue
		}
		transactions++
	}
	return transactions, errors.Join(faults...)
}

// tables lists those tables that exist.
func (i *iptables) tables() ([]string, error) {
	if i.kind == kindIptablesLegacy {
		return legacyTables(i.ipv6)
	}
	chains, err := nfChains(nfFamily(i.ipv6))
	if errors.Is(err, errNoNFTables) {
		return nil, nil
	}
	var names []string
	for _, c := range chains {
		if c.family == nfFamily(i.ipv6) {
			names = append(names, c.table)
		}
	}
	return names, err
}

// restore changes tables, each in one transaction and one after the other, until one cannot be changed.
func (i *iptables) restore(ctx context.Context, t tools, payload string) error {
	args := []string{"--noflush"}
	if t.wait {
		args = append(args, "-w", lockWait)
	}
	_, err := run(ctx, payload, t.restore, args...)
	return err
}

func (i *iptables) save(ctx context.Context, t tools, name string) (saved, error) {
	text, err := run(ctx, "", t.save, "-t", name)
	if err != nil {
		return saved{}, err
	}
	if strings.Contains(text, "is incompatible, use 'nft' tool") {
		return saved{}, errors.New("it holds rules that this iptables cannot read: manage them with nft, or set EnableNFTables")
	}
	return parseSave(text, name), nil
}
