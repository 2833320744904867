package test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// Two hosts run weftd with each backend in turn. After weft cleanup each host is as it was before.
func TestCleanupLeavesTheHostAsItWas(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Driver: lab.Bare, Store: lab.Embedded, WeftdArgs: []string{
		"--ip-masq", "--ip-blackhole-route", "--allow-extension", "--etcd-prefix=" + prefix}})
	before := map[*lab.Node][]string{}
	for _, n := range l.Nodes() {
		sh(t, n.Host, emptyTables) // since iptables never removes one that it has made
		before[n] = hostState(t, n)
	}
	d := matrixDimensions()
	dual := len(d.families) - 1
	for i, b := range d.backends {
		if b.name == "extension" { // whose commands write where they like
			continue
		}
		c := combination{backend: i, family: dual, firewall: i % len(d.firewalls)}
		if b.only4 {
			c.family = 0
		}
		wall := d.firewalls[c.firewall]
		t.Run(b.name+", "+wall.name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(l.Node(1).NetConfigFile, d.config(t, c), 0o644),
				os.RemoveAll(l.Node(1).Dir+"/etcd")); err != nil {
				t.Fatal(err)
			}
			for _, n := range l.Nodes() {
				sh(t, n.Host, wall.hint)
				if err := n.Start(await.Context(t, await.Patience)); err != nil {
					t.Fatal(lab.Explain(err))
				}
			}
			for _, n := range l.Nodes() {
				status(t, n, await.Patience, func(s statusJSON) error {
					if !s.Ready || s.Peers != 1 {
						return fmt.Errorf("ready %v, %d peers", s.Ready, s.Peers)
					}
					return nil
				})
				if slices.Equal(hostState(t, n), before[n]) {
					t.Errorf("%s: weftd runs, and nothing of it is seen", n.Name)
				}
			}
			for _, n := range slices.Backward(l.Nodes()) { // the first has the store
				leaves(t, n)
				sh(t, n.Host, strings.Replace(wall.hint, "-N ", "-X ", 1))
				after := hostState(t, n)
				gone, left := without(before[n], after), without(after, before[n])
				if len(gone)+len(left) > 0 {
					t.Errorf("%s: gone:\n%s\nleft:\n%s", n.Name, strings.Join(gone, "\n"), strings.Join(left, "\n"))
				}
			}
		})
	}
}

// emptyTables makes the tables and chains of iptables that weftd and these tests may use, and leaves them
// empty.
const emptyTables = `for kind in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
for place in "filter FORWARD" "nat POSTROUTING" "mangle INPUT"; do
set -- $place; $kind -t $1 -A $2 -j RETURN; $kind -t $1 -D $2 -j RETURN
done; done`

// hostState is what weftd could change in a host, line by line: links, addresses, routes, neighbours,
// forwarding entries, rules and settings, without what changes by itself.
func hostState(t *testing.T, n *lab.Node) []string {
	t.Helper()
	text := sh(t, n.Host,
		`ip -o link; ip -o address; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all
ip neigh show nud permanent; bridge fdb show; bridge link; nft list ruleset
iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save; sysctl -a -e 2>/dev/null | grep ^net`)
	for _, varies := range []string{
		`packets \d+ bytes \d+`, `\[\d+:\d+\]`, `(?m)^#.*$`, `expires \d+sec`, `valid_lft \w+`, `preferred_lft \w+`,
		`(?m)^net\.netfilter\.nf_conntrack_count.*$`, `(?m)^net\.\S*\.base_reachable_time.*$`,
	} {
		text = regexp.MustCompile(varies).ReplaceAllString(text, "")
	}
	return strings.Split(text, "\n")
}

// without returns the lines of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}
