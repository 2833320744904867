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

// Two hosts, on which others have things of their own that look like weft's, run weftd with each backend in
// turn. After weft cleanup each host is as it was before, and what it removes a dry run has said.
func TestCleanupLeavesTheHostAsItWas(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Driver: lab.Bare, Store: lab.Embedded, WeftdArgs: []string{
		"--ip-masq", "--ip-blackhole-route", "--allow-extension", "--etcd-prefix=" + prefix}})
	before := map[*lab.Node][]string{}
	for _, n := range l.Nodes() {
		sh(t, n.Host, emptyTables+"\n"+foreign) // since iptables never removes a table that it has made
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
				if i == 0 {
					leavesAsItSaid(t, n)
				} else {
					leaves(t, n)
				}
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

// leavesAsItSaid is leaves with all that weft cleanup says and refuses, where more is left than usual.
func leavesAsItSaid(t *testing.T, n *lab.Node) {
	t.Helper()
	if _, errs, err := weft(t, n, "cleanup"); err == nil || !strings.Contains(errs, "--force") {
		t.Errorf("while weftd runs: %v %q", err, errs)
	}
	if err := n.Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	sh(t, n.Host, outlived)
	// A device that nobody reads any more loses its carrier a moment later.
	carrier := regexp.MustCompile(`<\S*>|state \w+|linkdown ?|qdisc \w+`)
	state := func() string { return carrier.ReplaceAllString(strings.Join(hostState(t, n), "\n"), "") }
	flags := []string{"cleanup", "--files", "--cache-dir", n.CacheDir, "--subnet-file", n.SubnetFile}
	before := state()
	dry, errs, err := weft(t, n, append(flags, "--dry-run")...)
	if err != nil || !containsAll(dry, []string{"netdev weft-raw-192.0.2.1-8285", "link weft-tx4",
		"link weft-probe"}) {
		t.Errorf("dry run: %v %s\n%s", err, errs, dry)
	}
	if now := state(); now != before {
		t.Errorf("a dry run made\n%s\nof\n%s", now, before)
	}
	done, errs, err := weft(t, n, flags...)
	if err != nil || done != strings.ReplaceAll(dry, "would remove", "removed") {
		t.Errorf("%v %s\n%s\nafter a dry run that said\n%s", err, errs, done, dry)
	}
	if again, errs, err := weft(t, n, flags...); err != nil || !strings.HasPrefix(again, "nothing of weft's") {
		t.Errorf("the second time: %v %s%s", err, errs, again)
	}
}

// emptyTables makes the tables and chains of iptables that weftd and these tests may use, and leaves them
// empty.
const emptyTables = `for kind in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
for place in "filter FORWARD" "nat POSTROUTING" "mangle INPUT"; do
set -- $place; $kind -t $1 -A $2 -j RETURN; $kind -t $1 -D $2 -j RETURN
done; done`

// foreign makes what is others', some of which only looks like weft's.
const foreign = `ip link add theirs type veth peer name theirs-far
ip link set theirs alias theirs
ip link set theirs up
ip route add 192.0.2.0/24 dev theirs proto 99
iptables-nft -N THEIRS
iptables-nft -A FORWARD -s 10.42.0.0/16 -j THEIRS
iptables-legacy -N THEIRS
nft add table ip theirs
ip link add theirs0 type bridge
ip link set theirs0 alias weft
ip tuntap add weft-tx77 mode tap
ip tuntap add weft-tx6 mode tap
ip link add flannel.77 type bridge
ip link set flannel.77 alias weft
nft add table netdev weft-raw-theirs
nft add table netdev weft-raw-192.0.2.9-1
iptables-nft -N WEFT-CUSTOM
iptables-legacy -N WEFT-CUSTOM
iptables-legacy -A INPUT -j WEFT-CUSTOM`

// outlived makes what looks as if it had outlived a data plane, which the kernel prevents, or a probe that
// was killed.
const outlived = `nft add table netdev weft-raw-192.0.2.1-8285
nft add chain netdev weft-raw-192.0.2.1-8285 ingress '{ type filter hook ingress device eth0 priority 0; }'
nft add rule netdev weft-raw-192.0.2.1-8285 ingress counter comment weft
ip tuntap add weft-tx4 mode tap
ip link set weft-tx4 alias weft
ip link add weft-probe type vxlan id 16777215 dstport 1`

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
