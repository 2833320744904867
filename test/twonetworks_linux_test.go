package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/netns"
	"weft/test/traffic"
)

// Two weftd with networks of their own share each host. The pods of both networks reach their peers, neither
// weftd changes a rule of the other's, and after cleanup of one a host is as it was before that one came.
// Rules in each firewall package hostrules tests.
func TestTwoNetworksOnOneHost(t *testing.T) {
	long(t)
	netns.Programs(t, "iptables-nft:iptables", "nft:nftables")
	f := firewalls()[1]
	config := func(number int, backend string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(
			`{%s"Network":"10.4%d.0.0/16","EnableIPv6":true,"IPv6Network":"fd4%d::/48","Backend":%s}`,
			f.key, number, number, backend))
	}
	l := up(t, lab.Spec{
		NetworkConfig: config(2, `{"Type":"vxlan"}`),
		WeftdArgs:     []string{"--ip-masq", "--iptables-resync=1", "--ip-blackhole-route"},
	})
	alone := map[*lab.Node]map[string]bool{}
	for _, n := range l.Nodes() {
		sh(t, n.Host, f.hint)
		for _, iptables := range f.policy {
			sh(t, n.Host, iptables+" -P FORWARD DROP")
		}
		if err := n.Restart(await.Context(t, await.Patience)); err != nil {
			t.Fatal(lab.Explain(err))
		}
		unharmed(t, n, f.name)
		alone[n] = traces(t, n, f)
	}
	// on the port of the first, as flannel's can be
	seconds, err := l.Second(t.Context(), config(3, `{"Type":"vxlan","VNI":2}`))
	defer sayEnds(t, seconds)
	if err != nil {
		t.Fatal(lab.Explain(err))
	}
	reach(t, await.Patience, seconds[0].Pods[0], seconds[1].Pods[0], 4)
	reach(t, await.Patience, seconds[0].Pods[0], seconds[1].Pods[0], 6)
	flows := append(flowsBetween(t, l.Nodes()), flowsBetween(t, seconds)...)
	for _, flow := range flows {
		flow.Passes(5000) // five inspections of the rules
	}
	for _, n := range append(l.Nodes(), seconds...) {
		unharmed(t, n, f.name)
	}
	for _, flow := range flows {
		flow.Lossless()
	}
	flows = flowsBetween(t, l.Nodes())
	for _, n := range seconds {
		leaves(t, n)
	}
	for _, n := range l.Nodes() {
		before, now := alone[n], traces(t, n, f)
		if !maps.Equal(before, now) {
			t.Errorf("%s before the second weftd:\n%s\nafter its cleanup:\n%s", n.Name, inLines(before), inLines(now))
		}
		unharmed(t, n, f.name)
	}
	for _, flow := range flows {
		flow.Passes(2000)
		flow.Lossless()
	}
}

// leaves ends a node's weftd and cleans up after it.
func leaves(t *testing.T, n *lab.Node) {
	t.Helper()
	if err := n.Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	out, errs, err := weft(t, n, "cleanup", "--files", "--cache-dir", n.CacheDir, "--subnet-file", n.SubnetFile)
	if err != nil {
		t.Errorf("cleanup: %v: %s%s", err, out, errs)
	}
	t.Log(out)
}

// unharmed waits until the rules of a node are in place, and checks that nobody has changed them since its
// start.
func unharmed(t *testing.T, n *lab.Node, firewall string) {
	t.Helper()
	if r := rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace && r.Rules.Firewall == firewall }); r.Rules.Repaired != 0 {
		t.Errorf("%s: %+v", n.Name, r.Rules)
	}
}

// flowsBetween sends from a pod of the first node to one of the second, in both families.
func flowsBetween(t *testing.T, nodes []*lab.Node) (all []*traffic.Flow) {
	a, b := nodes[0].Pods[0], nodes[1].Pods[0]
	for _, family := range []int{4, 6} {
		all = append(all, traffic.Start(t, a.Endpoint(family), b.Endpoint(family), 1000))
	}
	return all
}

// traces are what weft has in a host: lines of devices, routes and rules, without counters.
func traces(t *testing.T, n *lab.Node, f firewall) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	for line := range strings.Lines(sh(t, n.Host, "ip -o link | grep flannel; ip route show table all proto "+
		"119; ip -6 route show table all proto 119; nft list tables netdev; "+f.list)) {
		before, _, _ := strings.Cut(line, "counter")
		before, _, _ = strings.Cut(before, " [")
		if !strings.HasPrefix(line, "#") {
			lines[strings.TrimSpace(before)] = true
		}
	}
	return lines
}

func inLines(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), "\n")
}

// sayEnds ends weftds beside the lab's own, and prints the end of their logs if the test has failed.
func sayEnds(t *testing.T, nodes []*lab.Node) {
	for _, n := range nodes {
		_ = n.Kill() // most have ended
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", n.Daemon.Name, n.Daemon.LogTail(40))
		}
	}
}
