package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// A network that gets IPv6 while it runs: nodes with IPv4 alone beside such with both. Each pair has
// the families that both have, in sizes that both take, and a node
// with IPv4 alone learns nothing of the other.
func TestMixedFamilies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, backend string
		mtu, dual     int // of the nodes with IPv4 alone, and of those with both
	}{
		{"udp", `{"Type":"udp"}`, 1472, 1472},
		{"vxlan by the kernel", `{"Type":"vxlan","Userspace":"never"}`, 1450, 1430},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: 2, NetworkConfig: networkOf(c.backend, false),
				WeftdArgs: []string{"--ip-masq"}})
			put(t, l.Store, prefix+"/config", string(networkOf(c.backend, true)), 0)
			for range 2 {
				if _, err := l.AddNode(await.Context(t, 30*time.Second)); err != nil {
					t.Fatal(lab.Explain(err))
				}
			}
			fours, duals := l.Nodes()[:2], l.Nodes()[2:]
			for _, n := range l.Nodes() {
				dual, mtu := slices.Contains(duals, n), c.mtu
				if dual {
					mtu = c.dual
				}
				status(t, n, await.Patience, func(s statusJSON) error {
					if !s.Ready || s.Peers != 3 || s.Rejected != 0 || !s.Backend.InPlace || len(s.Backend.Notes) != 0 ||
						s.Config.Differs == dual {
						// who runs on sees that the store has another
						return fmt.Errorf("ready %v, %d peers, %d rejected, %+v, %+v", s.Ready, s.Peers, s.Rejected,
							s.Backend, s.Config)
					}
					return nil
				})
				if n.Net.V6.IsValid() != dual || n.Net.MTU != mtu {
					t.Errorf("%s has %+v", n.Name, n.Net)
				}
				if out, _, err := weft(t, n, "peers"); err != nil || strings.Contains(out, "skipped") {
					t.Errorf("%s: %v\n%s", n.Name, err, out)
				}
			}
			everyPair(t, l.Pods())
			if routes := sh(t, fours[0].Host, "ip -6 route show proto 119"); routes != "" {
				t.Errorf("a node with IPv4 alone has\n%s", routes)
			}
			for _, direction := range [][2]*lab.Node{{fours[0], duals[0]}, {duals[0], fours[0]}} {
				from, to := direction[0].Pods[0], direction[1].Pods[0]
				tellsSize(t, from, to, c.dual)
				stream(t, from.Endpoint(4), to.Endpoint(4))
			}
		})
	}
}

// everyPair reaches every pod from every other in each family that both have.
func everyPair(t *testing.T, pods []*lab.Pod) {
	t.Helper()
	for _, a := range pods {
		for _, b := range pods {
			for _, f := range []int{4, 6} {
				if a != b && a.Addr(f).IsValid() && b.Addr(f).IsValid() {
					reach(t, await.Patience, a, b, f)
				}
			}
		}
	}
}

// tellsSize checks that packets of the size that both ends take arrive whole, and that the sender of a longer
// one is told that size.
func tellsSize(t *testing.T, from, to *lab.Pod, mtu int) {
	t.Helper()
	const headers = 20 + 8 // of IPv4 and ICMP
	ping := func(size int) string {
		return sh(t, from.Host, fmt.Sprintf("ping -4 -M do -c 2 -i 0.2 -W 10 -s %d %v 2>&1 || true",
			size-headers, to.V4))
	}
	if out := ping(mtu); !strings.Contains(out, " 0% packet loss") {
		t.Errorf("%d bytes from %s to %s:\n%s", mtu, from.Name, to.Name, out)
	}
	if out := ping(mtu + 1); !strings.Contains(out, fmt.Sprintf("mtu = %d", mtu)) &&
		!strings.Contains(out, fmt.Sprintf("mtu=%d", mtu)) {
		t.Errorf("%d bytes from %s to %s:\n%s", mtu+1, from.Name, to.Name, out)
	}
}
