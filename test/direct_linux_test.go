package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// Pods that are attached directly, with no bridge and no veth pair: all that they do together, and what their
// node does for them as a router. The scenarios share one lab of two nodes with two pods each, and run one
// after the other.
func TestDirectPods(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(dualStack), PodsPerNode: 2, Attach: lab.DirectAttach,
		WeftdArgs: []string{"--ip-masq"}})
	a, sibling, b := l.Node(1).Pods[0], l.Node(1).Pods[1], l.Node(2).Pods[0]
	for _, to := range []*lab.Pod{sibling, b} {
		t.Run("traffic to "+to.Name, func(t *testing.T) {
			for _, family := range []int{4, 6} {
				carries(t, a, to, family)
				fullSize(t, a, to, family, a.Node.Net.MTU)
			}
		})
	}
	everyPair(t, l.Pods())
	t.Run("what is no pod's goes out by the host", func(t *testing.T) { directOut(t, l, a) })
	t.Run("hostile pod", func(t *testing.T) { directTunnels(t, a, sibling, b) })
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Counters.Egress.balanced() || !s.Counters.Ingress.balanced() {
				return fmt.Errorf("%s: received is not delivered and dropped: %+v", n.Name, s.Counters)
			}
			return nil
		})
	}
	t.Run("MTU", func(t *testing.T) { directMTU(t, a, b) })
	// last: counters begin anew
	t.Run("killed with connections", func(t *testing.T) { directRestart(t, a, sibling, b) })
}

// directMTU gives a node's underlay another MTU, before its weftd is killed and afterwards: the interfaces of
// its pods follow without being attached anew, what fits goes out whole, and what does not is refused by the
// pod's own kernel.
func directMTU(t *testing.T, a, b *lab.Pod) {
	set := func(underlay, overlay int) {
		t.Helper()
		sh(t, a.Node.Host, fmt.Sprintf("ip link set eth0 mtu %d", underlay))
		await.OK(t, fmt.Sprintf("an MTU of %d in %s", overlay, a.Name), func() error {
			if out, err := a.Command(t.Context(), "cat", "/proc/sys/net/ipv6/conf/eth0/mtu"); err != nil ||
				strings.TrimSpace(string(out)) != fmt.Sprint(overlay) {
				return fmt.Errorf("it is %s: %v", out, err)
			}
			return nil
		})
		for _, family := range []int{4, 6} {
			await.OK(t, "what fits goes out whole", func() error {
				size := overlay - map[int]int{4: 28, 6: 48}[family]
				out, err := a.Command(t.Context(), "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", fmt.Sprint(size),
					b.Addr(family).String())
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				return err
			})
		}
	}
	whole := a.Node.Net.MTU
	set(1400, whole-100)
	if err := a.Node.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.Node.Daemon.Exited()
	if err := a.Node.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	set(1500, whole)
}

// directOut talks to a machine that is neither pod nor peer, which sees the node's address.
func directOut(t *testing.T, l *lab.Lab, a *lab.Pod) {
	const number, port = 79, 7777
	h := newcomer(t, l, number)
	ear := hear(t, h, port)
	for family, outside := range map[int]string{4: fmt.Sprintf("198.18.0.%d", number),
		6: fmt.Sprintf("fd18::%x", number)} {
		to := netip.AddrPortFrom(netip.MustParseAddr(outside), port)
		want := map[int]netip.Addr{4: a.Node.Underlay4, 6: a.Node.Underlay6}[family]
		if got := seenFrom(t, a.Host, to, ear); got != want {
			t.Errorf("a machine on the wire sees %s as %s, want %s", a.Name, got, want)
		}
		stream(t, a.Endpoint(family), probe.Endpoint{Name: h.Name, NS: h.NS, Addr: to.Addr()})
	}
}

// The address of a service, which no host has, and its first port.
const (
	service4, service6 = "10.96.0.10", "fd96::10"
	servicePort        = 80
)

// translateTo makes the rules that kube-proxy would make for a service with one backend, and takes them away
// after the test.
func translateTo(t *testing.T, client, backend *lab.Pod, family int, port, toPort uint16) {
	t.Helper()
	word, to := map[int]string{4: "ip", 6: "ip6"}[family], netip.AddrPortFrom(backend.Addr(family), toPort)
	service, table := map[int]string{4: service4, 6: service6}[family], fmt.Sprintf("service%d", port)
	sh(t, client.Node.Host, fmt.Sprintf(`nft -f - <<-END
		table %[1]s %[6]s {
			chain in { type nat hook prerouting priority dstnat; %[1]s daddr %[2]s meta l4proto { tcp, udp } th dport %[3]d dnat to %[4]s; }
			chain out { type nat hook postrouting priority srcnat; %[1]s saddr %[5]s %[1]s daddr %[5]s masquerade; }
		}
	END`, word, service, port, to, backend.Addr(family), table))
	t.Cleanup(func() {
		if _, err := client.Node.Command(context.Background(), "nft", "delete", "table", word, table); err != nil {
			// the test's own context has ended
			t.Error(err)
		}
	})
}

// directRestart kills the weftd of each of two nodes, and starts it again. Bytes that go there and back between
// their pods meanwhile go on, over the same connection, and no pod is attached anew. While a's weftd is away,
// backends have something to say on connections that a has opened by way of a service, and are silent
// otherwise, as a database that notifies. The first packets that the new weftd sees are theirs: they come to a
// from the service's address, over the same connections.
func directRestart(t *testing.T, a, sibling, b *lab.Pod) {
	var straight []*talking
	for _, family := range []int{4, 6} {
		c, _ := talkTo(t, a, b.Host, netip.AddrPortFrom(b.Addr(family), 8080), 32<<10, time.Millisecond)
		c.goesOn(t, 100)
		straight = append(straight, c)
	}

	type connection struct {
		what           string
		client, server net.Conn
	}
	var all []connection
	for i, backend := range []*lab.Pod{b, sibling} {
		for _, family := range []int{4, 6} {
			port := uint16(servicePort + 1 + i)
			translateTo(t, a, backend, family, port, port)
			at := netip.AddrPortFrom(backend.Addr(family), port)
			l := listenTCP(t, backend.Host, at)
			service := netip.AddrPortFrom(netip.MustParseAddr(map[int]string{4: service4, 6: service6}[family]), port)
			client, err := a.NS.Dial(await.Context(t, await.Patience), "tcp", service.String())
			if err != nil {
				t.Fatalf("from %s: %v", a.Name, err)
			}
			t.Cleanup(func() { _ = client.Close() })
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			c := connection{fmt.Sprintf("%s to %s at %s", a.Name, service, backend.Name), client, server}
			notifies(t, c.what, c.client, c.server)
			notifies(t, c.what, c.server, c.client)
			all = append(all, c)
		}
	}
	for _, n := range []*lab.Node{a.Node, b.Node} {
		before := attachedTo(t, n)
		d := n.Daemon
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.Exited()
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
		for _, c := range all {
			notifies(t, c.what+", after the weftd of "+n.Name+" was killed", c.server, c.client)
			notifies(t, c.what+", after the weftd of "+n.Name+" was killed", c.client, c.server)
		}
		for _, c := range straight {
			c.goesOnWithin(t, 2*await.Patience, 100)
		}
		if after := attachedTo(t, n); after != before {
			t.Errorf("%s: %d pods are attached, before it was killed %d", n.Name, after, before)
		}
	}
}

// notifies has one end of a connection say something, and the other one hear it.
func notifies(t *testing.T, what string, from, to net.Conn) {
	t.Helper()
	const word = "notification"
	if _, err := io.WriteString(from, word); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := to.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != word {
		t.Fatalf("%s: %q arrived: %v", what, got, err)
	}
}

// attachedTo counts the pods of a node, of which none may have a problem.
func attachedTo(t *testing.T, n *lab.Node) (attached int) {
	t.Helper()
	await.OK(t, n.Name+" has ports for its pods", func() error {
		all, err := ask[struct {
			Pods []struct{ ID, State, Problem string }
		}](t.Context(), n, "pods")
		if err != nil {
			return err
		}
		attached = len(all.Pods)
		for _, p := range all.Pods {
			if p.State != "attached" || p.Problem != "" {
				return fmt.Errorf("%s is %s: %s", p.ID, p.State, p.Problem)
			}
		}
		return nil
	})
	return attached
}

// directTunnels has a, with its own address, send to the nodes' tunnel port what the other node could have
// sent. The host would masquerade it, so that it looked like the node's own.
func directTunnels(t *testing.T, a, sibling, b *lab.Pod) {
	for _, family := range []int{4, 6} {
		ears := map[*lab.Pod]*net.UDPConn{sibling: listenAt(t, sibling, family), b: listenAt(t, b, family)}
		for _, c := range []struct {
			to     *lab.Node
			victim *lab.Pod
			src    *lab.Pod
		}{{a.Node, sibling, b}, {b.Node, b, sibling}} {
			packet := inner(t, c.src.Addr(family).String(), c.victim.Addr(family).String(), secretPort, 64, "forged")
			under := map[int]netip.Addr{4: c.to.Underlay4, 6: c.to.Underlay6}[family]
			conn, err := a.NS.Dial(t.Context(), "udp", netip.AddrPortFrom(under, 8285).String())
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_, _ = conn.Write(packet) // refused at times, which is as well
			}
			_ = conn.Close()
		}
		for p, ear := range ears {
			hearsFirst(t, ear, a, netip.AddrPortFrom(p.Addr(family), secretPort))
			_ = ear.Close()
		}
	}
}
