package hostrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// chooseFlavour decides which iptables this host uses: the one in which kubelet left its hint,
// else the one with more chains that are not ours, else the one that the command iptables is. A
// flavour without programs on this host is not chosen. why is for the log.
func chooseFlavour(ctx context.Context) (k kind, why string, err error) {
	nft, errNFT := (&iptables{kind: kindIptablesNFT}).chainsOf()
	legacy, errLegacy := (&iptables{kind: kindIptablesLegacy}).chainsOf()
	if errors.Is(errNFT, errNoNFTables) {
		errNFT = nil
	}
	if err := errors.Join(errNFT, errLegacy); err != nil {
		return 0, "", err
	}
	command := kindIptablesNFT
	if path := lookPath("iptables"); path != "" {
		out, err := run(ctx, "", path, "--version")
		if err != nil {
			return 0, "", err
		}
		command = parseVersion(out).kind
	}
	k, why = preferFlavour(nft, legacy, command)
	if _, err := findTools(ctx, k, false); err == nil {
		return k, why, nil
	} else if !errors.Is(err, errNoTools) {
		return 0, "", err
	}
	other := kindIptablesNFT + kindIptablesLegacy - k
	if _, err := findTools(ctx, other, false); err != nil {
		return 0, "", errNoTools
	}
	return other, fmt.Sprintf("the host's is the other (%s), whose programs are missing here", why), nil
}

// preferFlavour decides from the chains that others have in each. It is pure.
func preferFlavour(nft, legacy []string, command kind) (kind, string) {
	hint := func(chains []string) bool {
		return slices.Contains(chains, "KUBE-IPTABLES-HINT") || slices.Contains(chains, "KUBE-KUBELET-CANARY")
	}
	others := func(chains []string) (n int) {
		builtin := hooks()
		for _, c := range chains {
			own := slices.ContainsFunc(iptablesTables(), func(table string) bool { return ownsChain(table, c) })
			if !own && !slices.Contains(builtin[:], c) {
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
