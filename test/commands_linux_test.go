package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// routesByCommand stands in a config for the file that routeScript returns.
const routesByCommand = "@routes"

// routeScript is a command of type extension that does what host-gw does: its argument is replace or del.
func routeScript(t *testing.T) string {
	t.Helper()
	const script = `#!/bin/sh
set -e
test -z "$SUBNET" || ip route $1 $SUBNET via $PUBLIC_IP
test -z "$IPV6SUBNET" || ip -6 route $1 $IPV6SUBNET via $PUBLIC_IPV6
`
	name := t.TempDir() + "/routes"
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// Nodes of type extension run the right commands for the right peers, while peers come, change, leave and
// come back, daemons die, a record is hostile and a command fails.
func TestExtension(t *testing.T) {
	parallel(t)
	script, made := routeScript(t), t.TempDir()
	hostile := `x"; touch ` + made + `/shell; $(touch ` + made + `/subshell) `
	backend, err := json.Marshal(map[string]string{"Type": "extension", "PreStartupCommand": "echo a key of $HOME's",
		"SubnetAddCommand": script + " replace", "SubnetRemoveCommand": script + " del", "PostStartupCommand": "touch " + made + "/$PUBLIC_IP"})
	if err != nil {
		t.Fatal(err)
	}
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: networkOf(string(backend), true), WeftdArgs: []string{"--allow-extension"}})
	meshed(t, l, []int{4, 6}, 1500)
	n := l.Node(1)
	for _, n := range l.Nodes() {
		waysByCommand(t, n, 2)
		if _, err := os.Stat(made + "/" + n.Underlay4.String()); err != nil {
			t.Errorf("PostStartupCommand: %v", err)
		}
	}
	if got, want := recordOf(t, l, n), `"BackendType":"extension","BackendData":"a key of `+os.Getenv("HOME")+`'s"`; !strings.Contains(got, want) {
		t.Errorf("the record is %s, without %s", got, want)
	}

	// A flannel node whose record is hostile, and one whose command fails: its address is on no link.
	put(t, l.Store, prefix+"/subnets/10.42.207.0-24", fmt.Sprintf(`{"PublicIP":"198.18.0.77","PublicIPv6":null,"BackendType":"extension","BackendData":%q}`, hostile), time.Hour)
	put(t, l.Store, prefix+"/subnets/10.42.208.0-24", `{"PublicIP":"203.0.113.8","PublicIPv6":null,"BackendType":"extension"}`, time.Hour)
	routed := func(subnet string, want bool) {
		t.Helper()
		await.OK(t, subnet, func() error {
			if got := sh(t, n.Host, "ip route; ip -6 route"); strings.Contains(got, subnet+" via") != want {
				return fmt.Errorf("routes, want it %v:\n%s", want, got)
			}
			return nil
		})
	}
	routed("10.42.207.0/24", true)
	status(t, n, await.Patience, func(s statusJSON) error {
		if !s.Ready || !strings.Contains(strings.Join(s.Backend.Notes, " "), "SubnetAddCommand") {
			return fmt.Errorf("ready %v, %+v", s.Ready, s.Backend)
		}
		return nil
	})
	sh(t, n.Host, "ip addr add 203.0.113.1/24 dev eth0") // from now on the command succeeds
	routed("10.42.208.0/24", true)
	if left, err := os.ReadDir(made); err != nil || len(left) != len(l.Nodes()) {
		t.Errorf("%v, %v", left, err)
	}

	// A peer that leaves while the daemon is dead is removed nevertheless.
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	del(t, l.Store, prefix+"/subnets/10.42.207.0-24")
	reach(t, await.Patience, n.Pods[0], l.Node(2).Pods[0], 4)
	if err := n.Start(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	routed("10.42.207.0/24", false)
	last := l.Node(3)
	if err := last.Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(err)
	}
	del(t, l.Store, recordKey(last))
	routed(last.Net.V4.Masked().String(), false)
	routed(last.Net.V6.Masked().String(), false)
	if err := last.Start(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	routed(last.Net.V4.Masked().String(), true)
	for _, f := range []int{4, 6} {
		reach(t, await.Patience, n.Pods[0], last.Pods[0], f)
	}
}

// waysByCommand waits until weft peers says of that many peers that commands reach them.
func waysByCommand(t *testing.T, n *lab.Node, count int) {
	t.Helper()
	if out, _, err := weft(t, n, "peers"); err != nil || strings.Count(out, "command") < count {
		t.Errorf("%s: %v, want %d:\n%s", n.Name, err, count, out)
	}
}

// Type alloc gives each node its subnet and writes it down, and makes no device and no route.
func TestAlloc(t *testing.T) {
	t.Parallel()
	for _, dual := range []bool{false, true} {
		t.Run(fmt.Sprintf("dual stack %v", dual), func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: 3, NetworkConfig: networkOf(`{"Type":"alloc"}`, dual), WeftdArgs: []string{"--ip-masq"}})
			var taken []netip.Prefix
			for _, n := range l.Nodes() {
				if n.Net.MTU != 1500 || slices.Contains(taken, n.Net.V4.Masked()) || n.Net.V6.IsValid() != dual {
					t.Errorf("%s has %+v, beside %v", n.Name, n.Net, taken)
				}
				taken = append(taken, n.Net.V4.Masked())
				before := recordOf(t, l, n)
				if strings.Contains(before, "Backend") {
					t.Errorf("the record is %s", before)
				}
				if err := n.Restart(await.Context(t, await.Patience)); err != nil {
					t.Fatal(lab.Explain(err))
				}
				if after := recordOf(t, l, n); after != before {
					t.Errorf("a restart changed the record from %s to %s", before, after)
				}
				status(t, n, await.Patience, func(s statusJSON) error {
					if !s.Ready || s.Backend.Path != "none" || !s.Backend.InPlace || len(s.Backend.Notes) > 0 {
						return fmt.Errorf("ready %v, %+v", s.Ready, s.Backend)
					}
					return nil
				})
				if got := sh(t, n.Host, "ip -o link | grep flannel || true; ip route show proto 119; ip -6 route show proto 119"); got != "" {
					t.Errorf("%s has\n%s", n.Name, got)
				}
				rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace })
			}
		})
	}
}
