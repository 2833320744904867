package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
)

// NodeArgument says how commands take a node.
const NodeArgument = "A node is its name, its id or the beginning of that, one of its addresses, its " +
	"subnet, or an address in that."

// NodeKeys is what commands know a node by.
type NodeKeys struct {
	Name, ID  string
	Addresses []netip.Addr
	Subnets   []netip.Prefix
}

func peerKeys(p control.Peer) NodeKeys {
	k := NodeKeys{Name: p.Name, ID: p.NodeID, Addresses: []netip.Addr{p.Address}, Subnets: p.Subnets}
	for _, r := range p.Reached {
		k.Addresses = append(k.Addresses, r.Via)
	}
	return k
}

func recordKeys(r control.Record) NodeKeys {
	return NodeKeys{Name: r.Name, ID: r.Node, Addresses: []netip.Addr{r.PublicIP, r.PublicIPv6},
		Subnets: []netip.Prefix{r.Subnet, r.IPv6Subnet}}
}

// minID is how much of an identity stands for the whole, if no other begins with it.
const minID = 4

// FindNode returns the place in nodes of the one that word means. Exact matches come before partial ones, so
// no chosen name takes the place of an id, an address or a subnet. The error says which there are.
func FindNode(nodes []NodeKeys, word string) (int, error) {
	address, noAddress := netip.ParseAddr(word)
	prefix, noPrefix := netip.ParsePrefix(word)
	for _, is := range []func(k NodeKeys) bool{
		func(k NodeKeys) bool { return noPrefix == nil && slices.Contains(k.Subnets, prefix.Masked()) },
		func(k NodeKeys) bool { return noAddress == nil && slices.Contains(k.Addresses, address.Unmap()) },
		func(k NodeKeys) bool { return k.ID != "" && k.ID == word },
		func(k NodeKeys) bool { return k.Name != "" && strings.EqualFold(k.Name, word) },
		func(k NodeKeys) bool {
			first, _, _ := strings.Cut(k.Name, ".")
			return noAddress != nil && first != "" && strings.EqualFold(first, word)
		},
		func(k NodeKeys) bool { return len(word) >= minID && strings.HasPrefix(k.ID, word) },
		func(k NodeKeys) bool {
			return noAddress == nil && slices.ContainsFunc(k.Subnets, func(s netip.Prefix) bool {
				return s.IsValid() && s.Contains(address.Unmap())
			})
		},
	} {
		var found []int
		for i, k := range nodes {
			if is(k) {
				found = append(found, i)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return 0, severalNodes(nodes, found, word)
		}
	}
	return 0, fmt.Errorf("no node is %q by name, id, address or subnet: weft peers shows the other nodes, weft "+
		"lease list all of them", word)
}

// severalNodes says by what the nodes that word may mean are told apart.
func severalNodes(nodes []NodeKeys, found []int, word string) error {
	var which []string
	for _, i := range found {
		k := nodes[i]
		which = append(which, fmt.Sprintf("%s at %s with %s", OrDash(k.ID), Join(k.Addresses...),
			Join(k.Subnets...)))
	}
	return fmt.Errorf("%q is the name of %d nodes: say which by id, address or subnet: %s", word, len(found),
		strings.Join(which, "; "))
}

// OnlyPeers returns those of p that words name, all of them without words.
func OnlyPeers(p control.Peers, words []string) (_ control.Peers, err error) {
	if len(words) > 0 {
		p = control.Peers{Peers: p.Peers}
		p.Peers, err = only(p.Peers, peerKeys, words)
	}
	return p, err
}

// only returns those of rows that words name.
func only[T any](rows []T, keysOf func(T) NodeKeys, words []string) ([]T, error) {
	var keys []NodeKeys
	for _, r := range rows {
		keys = append(keys, keysOf(r))
	}
	out := []T{}
	for _, w := range words {
		i, err := FindNode(keys, w)
		if err != nil {
			return out, err
		}
		out = append(out, rows[i])
	}
	return out, nil
}

// ShortID is as much of an identity as is shown beside a name, "-" if it is the name.
func ShortID(name, id string) string {
	const digits = 12
	switch {
	case id == "" || id == name:
		return "-"
	case len(id) > digits+2:
		return id[:digits] + "…"
	}
	return id
}

// NodeText is a node's name with its identity.
func NodeText(name, id string) string {
	switch {
	case name == "" || name == id:
		return OrDash(id)
	case id == "":
		return name
	}
	return name + " (id " + id + ")"
}

// completeTimeout bounds what the shell waits for.
const completeTimeout = time.Second

// CompletePeers lists the other nodes for the shell, by what tells them apart.
func (c *App) CompletePeers(cmd *cobra.Command, given []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return completeNodes(cmd, given, peerKeys, func(ctx context.Context) ([]control.Peer, error) {
		p, err := c.Client().Peers(ctx)
		return p.Peers, err
	})
}

// completeNodes lists what the daemon answers in time.
func completeNodes[T any](cmd *cobra.Command, given []string, keysOf func(T) NodeKeys,
	ask func(context.Context) ([]T, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	rows, _ := ask(ctx) // without an answer there is nothing to complete
	var keys []NodeKeys
	for _, r := range rows {
		keys = append(keys, keysOf(r))
	}
	return completions(keys, given), cobra.ShellCompDirectiveNoFileComp
}

// completions lists nodes by name, and by id where several have the name.
func completions(nodes []NodeKeys, given []string) (out []string) {
	times := map[string]int{}
	for _, k := range nodes {
		times[k.Name]++
	}
	for _, k := range nodes {
		word := k.Name
		if times[word] > 1 || word == "" {
			word = k.ID
		}
		if word == "" && len(k.Subnets) > 0 {
			word = k.Subnets[0].String()
		}
		if word != "" && Clean(word) == word && !slices.Contains(given, word) {
			out = append(out, word+"\t"+Join(k.Addresses[:1]...)+" "+Join(k.Subnets...))
		}
	}
	return out
}
