package test

import (
	"fmt"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// Two nodes decide differently: the first is on the second's wire and uses a plain route, while the
// second has a route by a router between them and answers by the tunnel. With strict reverse path
// filtering our devices accept such packets; the underlay's link does once the operator has done what
// the second node's status says.
func TestOneSideDirect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, backend string }{
		{"by the kernel", `{"Type":"auto"}`},
		{"in user space", `{"Type":"vxlan","DirectRouting":true,"Userspace":"always"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: 3, NetworkConfig: networkOf(c.backend, false)})
			first, second, router := l.Node(1), l.Node(2), l.Node(3)
			a, b := first.Pods[0], second.Pods[0]
			reach(t, await.Patience, a, b, 4)
			sh(t, first.Host, "sysctl -qw net.ipv4.conf.all.rp_filter=1")
			sh(t, router.Host, "sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0")
			sh(t, second.Host, fmt.Sprintf("ip route add %v/32 via %v", first.Underlay4, router.Underlay4))
			reachedBy(t, first, second, "route")
			reachedBy(t, second, first, "tunnel")

			// The first hears answers out of its device although it sends by the other. Restarted, so
			// that the device has its settings.
			if err := first.Restart(await.Context(t, await.Patience)); err != nil {
				t.Fatal(lab.Explain(err))
			}
			reach(t, await.Patience, a, b, 4)
			reach(t, await.Patience, b, a, 4)

			sh(t, second.Host, "sysctl -qw net.ipv4.conf.eth0.rp_filter=1")
			if out, err := a.Command(t.Context(), "ping", "-c", "3", "-i", "0.2", "-W", "1", b.V4.String()); err == nil {
				t.Fatalf("a strict link let it in:\n%s", out)
			}
			const remedy = "sysctl -w net.ipv4.conf.eth0.rp_filter=2"
			noted := func(want bool) {
				t.Helper()
				status(t, second, 2*await.Patience, func(s statusJSON) error { // the next look at the kernel
					if notes := strings.Join(s.Backend.Notes, "\n"); strings.Contains(notes, remedy) != want {
						return fmt.Errorf("notes %q", notes)
					}
					return nil
				})
			}
			sh(t, second.Host, "ip link set eth0 txqueuelen 999") // has it look
			noted(true)
			sh(t, second.Host, remedy)
			reach(t, await.Patience, a, b, 4)
			sh(t, second.Host, "ip link set eth0 txqueuelen 1000")
			noted(false)
		})
	}
}
