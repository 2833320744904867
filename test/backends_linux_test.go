package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// networkOf is a config with that Backend object.
func networkOf(backend string, dual bool) json.RawMessage {
	six := ""
	if dual {
		six = `"EnableIPv6":true,"IPv6Network":"fd42::/48",`
	}
	return json.RawMessage(fmt.Sprintf(`{"Network":"10.42.0.0/16",%s"Backend":%s}`, six, backend))
}

// Three nodes, every pod to every other, on each backend whose packets the kernel moves: pings,
// full-size packets that must not be fragmented, TCP, and the kernel's listings. Then without the
// daemon, after drift, with one node more and one less.
func TestKernelBackends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, backend string
		mtu           int
		way           string
	}{
		{"host-gw", `{"Type":"Host-GW"}`, 1500, "route"},
		{"vxlan", `{"Type":"vxlan","VNI":7,"Port":4789,"MTU":1400,"GBP":true,"Learning":true}`, 1330, "tunnel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: 3, NetworkConfig: networkOf(c.backend, true)})
			families := []int{4, 6}
			meshed(t, l, families, c.mtu)
			answering(t, l, families, c.mtu)
			for _, n := range l.Nodes() {
				waysAre(t, n, c.way, 2*len(families))
			}
			a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]

			// The kernel forwards without us.
			if err := b.Node.Kill(); err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				reach(t, await.Patience, a, b, f)
			}
			if err := b.Node.Start(t.Context()); err != nil {
				t.Fatal(lab.Explain(err))
			}
			before := recordOf(t, l, a.Node).value
			if err := a.Node.Restart(t.Context()); err != nil {
				t.Fatal(lab.Explain(err))
			}
			if after := recordOf(t, l, a.Node).value; after != before {
				t.Errorf("a restart changed the record from %s to %s", before, after)
			}

			for _, do := range []string{"ip route flush proto 119", "ip -6 route flush proto 119",
				"for d in $(ip -o link show type vxlan | cut -d: -f2); do ip link del $d; done",
				"ip link set eth0 down; sleep 0.2; ip link set eth0 up; ip addr replace " + b.Node.Underlay6.String() +
					"/64 dev eth0 nodad"} {
				sh(t, b.Node.Host, do)
				for _, f := range families {
					reach(t, await.Patience, a, b, f)
				}
				if err := b.Node.WaitReady(await.Context(t, await.Patience)); err != nil {
					t.Error(lab.Explain(err))
				}
			}

			more, err := l.AddNode(t.Context())
			if err != nil {
				t.Fatal(lab.Explain(err))
			}
			for _, f := range families {
				reach(t, await.Patience, more.Pods[0], a, f)
				reach(t, await.Patience, b, more.Pods[0], f)
			}
			if err := more.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			del(t, l.Store, recordKey(more))
			subnet := more.Net.V4.Masked().String()
			await.OK(t, "the routes to who left", func() error {
				if out := sh(t, a.Node.Host, "ip route; ip neigh; bridge fdb"); strings.Contains(out, subnet) ||
					strings.Contains(out, more.Underlay4.String()+" self") {
					return fmt.Errorf("%s", out)
				}
				return nil
			})
		})
	}
}

// meshed measures every pair, and then sends packets of the MTU's size, and of one byte more.
func meshed(t *testing.T, l *lab.Lab, families []int, mtu int) {
	t.Helper()
	// A node with plain routes solicits its neighbours from its link-local address, which is
	// tentative in the first two seconds of a link (RFC 4862 section 5.4).
	everyPair(t, l.Pods())
	r, err := l.Measure(await.Context(t, time.Minute), lab.MeasurePlan{Stream: -1, Echo: 300 * time.Millisecond,
		Wait: await.Patience})
	if faults := r.Faults(); err != nil || len(faults) > 0 {
		t.Errorf("%d pairs, %v, %q", len(r.Pairs), err, faults)
	}
	for _, p := range r.Pairs {
		if p.Received != p.Sent {
			t.Errorf("IPv%d: %s to %s: %d of %d pings answered %s", p.Family, p.From, p.To, p.Received,
				p.Sent, p.Error)
		}
	}
	for _, n := range l.Nodes() {
		if n.Net.MTU != mtu {
			t.Errorf("%s: MTU %d, want %d", n.Name, n.Net.MTU, mtu)
		}
	}
	for _, f := range families {
		fullSize(t, l.Node(1).Pods[0], l.Node(2).Pods[0], f, mtu)
		stream(t, l.Node(2).Pods[0].Endpoint(f), l.Node(3).Pods[0].Endpoint(f))
	}
}

// waysJSON is what weft peers --json says of how subnets are reached.
type waysJSON struct {
	Peers []struct {
		Name, Path           string
		TxPackets, RxPackets uint64
		Ways                 []struct{ Subnet, Way, Via, Reason string }
	}
}

// waysAre checks what weft peers says about how each subnet is reached.
func waysAre(t *testing.T, n *lab.Node, want string, count int) {
	t.Helper()
	found := 0
	for _, p := range weftJSON[waysJSON](t, n, "peers").Peers {
		for _, w := range p.Ways {
			if found++; w.Way != want || w.Via == "" || w.Reason != "" || p.Path != "kernel" {
				t.Errorf("%s to %s: %+v", n.Name, p.Name, w)
			}
		}
	}
	if out, _, err := weft(t, n, "peers"); found != count || err != nil ||
		!strings.Contains(out, "kernel "+want) {
		t.Errorf("%s: %d ways, want %d, %v\n%s", n.Name, found, count, err, out)
	}
}

// recordKey is the store's key of a node's lease.
func recordKey(n *lab.Node) string {
	key := strings.Replace(n.Net.V4.Masked().String(), "/", "-", 1)
	if n.Net.V6.IsValid() {
		key += "&" + strings.Replace(n.Net.V6.Masked().String(), "/", "-", 1)
	}
	return prefix + "/subnets/" + key
}

// recordOf is the record of a node's lease.
func recordOf(t *testing.T, l *lab.Lab, n *lab.Node) pair {
	t.Helper()
	for _, kv := range list(t, l.Store, recordKey(n)) {
		if kv.key == recordKey(n) {
			return kv
		}
	}
	t.Fatalf("%s has no record %s", n.Name, recordKey(n))
	return pair{}
}

// fullSize pings without fragmentation: the MTU's size passes, one byte more does not. A ping ends with the
// last answer, which may be an error.
func fullSize(t *testing.T, from, to *lab.Pod, family, mtu int) {
	t.Helper()
	const icmp = 8
	payload := mtu - icmp - map[int]int{4: 20, 6: 40}[family]
	ping := func(size int) (string, error) {
		out, err := from.Command(t.Context(), "ping", fmt.Sprintf("-%d", family), "-M", "do", "-c", "2", "-i",
			"0.2", "-W", "10",
			"-s", fmt.Sprint(size), to.Addr(family).String())
		return string(out), err
	}
	if out, err := ping(payload); err != nil {
		t.Errorf("IPv%d, %d bytes: %v\n%s", family, mtu, err, out)
	}
	if out, err := ping(payload + 1); err == nil {
		t.Errorf("IPv%d, %d bytes passed:\n%s", family, mtu+1, out)
	}
}

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
