package hostrules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// kind says which firewall has the rules that masquerade and accept.
type kind uint8

const (
	_ kind = iota
	kindNFTables
	kindIptablesNFT
	kindIptablesLegacy
)

func (k kind) String() string {
	switch k {
	case kindNFTables:
		return "nftables"
	case kindIptablesNFT:
		return "iptables, nft flavour"
	case kindIptablesLegacy:
		return "iptables, legacy flavour"
	}
	return "unknown"
}

// iptables is one flavour of iptables, for one family.
type iptables struct {
	ipv6 bool
	kind kind
	// tools is nil until the programs are found; each use looks for them again.
	tools *tools
	// done is what was wanted when it was last made so.
	done  []rule
	known bool
}

func (i *iptables) String() string {
	if i.ipv6 {
		return i.kind.String() + ", IPv6"
	}
	return i.kind.String() + ", IPv4"
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

// read has iptables-save print the tables that exist, with those flags. It starts nothing where there are
// none, and names none: naming a table of the legacy flavour makes it.
func (i *iptables) read(ctx context.Context, flags ...string) (map[string]saved, error) {
	some, err := i.exist()
	if err != nil || !some {
		return nil, err
	}
	t, err := i.find(ctx)
	if err != nil {
		return nil, err
	}
	text, err := run(ctx, "", t.save, flags...)
	if err != nil {
		return nil, err
	}
	for _, p := range places() {
		if strings.Contains(text, fmt.Sprintf("`%s' is incompatible, use 'nft' tool", p.table)) {
			return nil, fmt.Errorf("table %s holds rules that this iptables cannot read: manage them with nft, or "+
				"set EnableNFTables", p.table)
		}
	}
	return parseSave(text), nil
}

// exist reports whether the flavour has a table here.
func (i *iptables) exist() (bool, error) {
	if i.kind == kindIptablesNFT {
		c, err := connect()
		if err != nil {
			return false, nil
		}
		family := nftables.TableFamilyIPv4
		if i.ipv6 {
			family = nftables.TableFamilyIPv6
		}
		ts, err := c.ListTablesOfFamily(family)
		return err == nil && slices.ContainsFunc(ts, func(t *nftables.Table) bool {
			return slices.Contains([]string{"mangle", "filter", "nat"}, t.Name)
		}), nil
	}
	name := "/proc/thread-self/net/ip_tables_names"
	if i.ipv6 {
		name = "/proc/thread-self/net/ip6_tables_names"
	}
	b, err := os.ReadFile(name)
	// Some kernels let only the machine's root read it: then such tables are not seen.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return len(strings.TrimSpace(string(b))) > 0, err
}

// accept makes the flavour's tables as wanted, by one iptables-restore.
func (i *iptables) accept(ctx context.Context, s scope, want familyRules) (wrote, repaired bool, err error) {
	have, err := i.read(ctx)
	if err != nil {
		return false, false, fmt.Errorf("%v: %w", i, err)
	}
	if have == nil && want.masquerade == nil && want.forward == nil {
		return false, false, nil
	}
	t, err := i.find(ctx)
	if err != nil {
		return false, false, err
	}
	payloads := []string{}
	for _, p := range places() {
		if text := p.payload(have[p.table], p.rulesFor(want, t.options), s); text != "" {
			payloads = append(payloads, text)
		}
	}
	rules := slices.Concat(want.masquerade, want.forward)
	repaired = i.known && slices.Equal(i.done, rules)
	i.done, i.known = rules, true
	if len(payloads) == 0 {
		return false, false, nil
	}
	var faults []error
	for _, text := range payloads { // apart, so that a table that is refused does not disturb the others
		if err := i.restore(ctx, t, text); err != nil {
			faults = append(faults, fmt.Errorf("%v: %w", i, err))
		}
	}
	return true, repaired, errors.Join(faults...)
}

// restore changes a table in one transaction.
func (i *iptables) restore(ctx context.Context, t tools, payload string) error {
	args := []string{"--noflush"}
	if t.options {
		args = append(args, "-w", lockWait)
	}
	_, err := run(ctx, payload, t.restore, args...)
	return err
}

// chooseFlavour decides which iptables this host uses: the one in which kubelet left its hint, else the one
// with more chains that are not ours, else the one that the command iptables is. why is for the log.
func chooseFlavour(ctx context.Context) (k kind, why string, err error) {
	chains := map[kind][]string{}
	var usable []kind
	for _, k := range []kind{kindIptablesNFT, kindIptablesLegacy} {
		i := &iptables{kind: k}
		if _, err := i.find(ctx); errors.Is(err, errNoTools) {
			continue
		} else if err != nil {
			return 0, "", err
		}
		usable = append(usable, k)
		if tables, err := i.read(ctx); err == nil { // what cannot be read here has no hint
			for _, t := range tables {
				chains[k] = append(chains[k], t.order...)
			}
		}
	}
	switch len(usable) {
	case 0:
		return 0, "", errNoTools
	case 1:
		return usable[0], "the programs of the other are missing", nil
	}
	command := kindIptablesNFT
	if path := lookPath("iptables"); path != "" {
		out, err := run(ctx, "", path, "--version")
		if err != nil {
			return 0, "", err
		}
		command = parseVersion(out).kind
	}
	k, why = preferFlavour(chains[kindIptablesNFT], chains[kindIptablesLegacy], command)
	return k, why, nil
}

// preferFlavour decides from the chains in each. It is pure.
func preferFlavour(nft, legacy []string, command kind) (kind, string) {
	hint := func(chains []string) bool {
		return slices.Contains(chains, "KUBE-IPTABLES-HINT") || slices.Contains(chains, "KUBE-KUBELET-CANARY")
	}
	others := func(chains []string) (n int) {
		for _, c := range chains {
			if c != chainAccept && c != chainMasquerade &&
				!slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, c) {
				n++
			}
		}
		return n
	}
	switch n, l := others(nft), others(legacy); {
	case hint(nft):
		return kindIptablesNFT, "kubelet's hint"
	case hint(legacy):
		return kindIptablesLegacy, "kubelet's hint"
	case n > l:
		return kindIptablesNFT, "others have their chains there"
	case l > n:
		return kindIptablesLegacy, "others have their chains there"
	}
	return command, "the command iptables is of that flavour"
}
