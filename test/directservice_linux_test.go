package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

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
