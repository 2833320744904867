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

// Two weftd with networks of their own share each host. In each firewall the pods of both networks reach
// their peers, neither weftd changes a rule of the other's, and after cleanup of one a host is as it was
// before that one came.
func TestTwoNetworksOnOneHost(t *testing.T) {
	long(t)
	netns.Programs(t, "iptables-nft:iptables", "nft:nftables")
	config := func(f firewall, number int, backend string) string {
		return fmt.Sprintf(
			`{%s"Network":"10.4%d.0.0/16","EnableIPv6":true,"IPv6Network":"fd4%d::/48","Backend":%s}`,
			f.key, number, number, backend)
	}
	const udp, vxlan = `{"Type":"udp"}`, `{"Type":"vxlan"}`
	const vxlan2 = `{"Type":"vxlan","VNI":2}` // on the port of the first, as flannel's can be
	f := firewalls()
	l := up(t, lab.Spec{
		NetworkConfig: json.RawMessage(config(f[1], 2, vxlan)),
		WeftdArgs:     []string{"--ip-masq", "--iptables-resync=1", "--ip-blackhole-route"},
	})
	for _, n := range l.Nodes() {
		sh(t, n.Host, f[1].hint)
	}
	seconds, err := l.Second(t.Context(), json.RawMessage(config(f[1], 3, vxlan2)))
	defer sayEnds(t, seconds)
	if err != nil {
		t.Fatal(lab.Explain(err))
	}
	for _, n := range seconds {
		leaves(t, n)
	}
	for _, c := range []struct {
		firewall
		first, second string
		other         string // a device of the first network's backend before
	}{
		{f[1], vxlan, vxlan2, "flannel0"},
		{f[0], udp, vxlan2, "flannel-v6.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			put(t, l.Store, prefix+"/config", config(c.firewall, 2, c.first), 0)
			put(t, l.Store, lab.SecondPrefix+"/config", config(c.firewall, 3, c.second), 0)
			alone := map[*lab.Node]map[string]bool{}
			for _, n := range l.Nodes() {
				for _, iptables := range c.policy {
					sh(t, n.Host, iptables+" -P FORWARD DROP")
					defer sh(t, n.Host, iptables+" -P FORWARD ACCEPT")
				}
				if err := n.Restart(await.Context(t, await.Patience)); err != nil {
					t.Fatal(lab.Explain(err))
				}
				unharmed(t, n, c.name)
				await.True(t, "what another backend left goes", func() bool {
					return !strings.Contains(sh(t, n.Host, "ip -o link"), c.other+":")
				})
				alone[n] = traces(t, n, c.firewall)
			}
			for _, n := range seconds {
				if err := n.Start(await.Context(t, await.Patience)); err != nil {
					t.Fatal(lab.Explain(err))
				}
			}
			reach(t, await.Patience, seconds[0].Pods[0], seconds[1].Pods[0], 4)
			reach(t, await.Patience, seconds[0].Pods[0], seconds[1].Pods[0], 6)
			both := append(l.Nodes(), seconds...)
			flows := append(flowsBetween(t, l.Nodes()), flowsBetween(t, seconds)...)
			for _, flow := range flows {
				flow.Passes(5000) // five inspections of the rules
			}
			for _, n := range both {
				unharmed(t, n, c.name)
			}
			for _, flow := range flows {
				flow.Lossless()
			}
			flows = flowsBetween(t, l.Nodes())
			for _, n := range seconds {
				leaves(t, n)
			}
			for _, n := range l.Nodes() {
				before, now := alone[n], traces(t, n, c.firewall)
				if !maps.Equal(before, now) {
					t.Errorf("%s before the second weftd:\n%s\nafter its cleanup:\n%s", n.Name, inLines(before),
						inLines(now))
				}
				unharmed(t, n, c.name)
			}
			for _, flow := range flows {
				flow.Passes(2000)
				flow.Lossless()
			}
		})
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
