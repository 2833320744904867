package test

import (
	"bytes"
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

// The address of a service, which no host has, and its port; the port behind it.
const (
	service4, service6 = "10.96.0.10", "fd96::10"
	servicePort        = 80
	backendPort        = 8080
)

// directServices has nftables on a's node translate a service's address to a pod: one on another node, one on the same node, and a
// itself. What the backend answers comes back to a from the service's address, in both families, over TCP and UDP, and in fragments.
func directServices(t *testing.T, a, sibling, b *lab.Pod) {
	for _, backend := range []*lab.Pod{b, sibling, a} {
		t.Run("backend "+backend.Name, func(t *testing.T) {
			for _, family := range []int{4, 6} {
				translate(t, a, backend, family)
				echoTCP(t, backend, family)
				echoUDP(t, backend, family)
				service := netip.AddrPortFrom(netip.MustParseAddr(map[int]string{4: service4, 6: service6}[family]), servicePort)
				asksTCP(t, a, service)
				asksUDP(t, a, service)
			}
		})
	}
	t.Run("without a service", func(t *testing.T) { // answers go straight again, and new flows do so at once
		for _, family := range []int{4, 6} {
			for _, p := range []*lab.Pod{sibling, b} {
				streams(t, a.Endpoint(family), p.Endpoint(family))
			}
		}
	})
}

// translate makes the rules that kube-proxy would make for a service with one backend, and takes them away after the test.
func translate(t *testing.T, client, backend *lab.Pod, family int) {
	t.Helper()
	translateTo(t, client, backend, family, servicePort, backendPort)
}

// translateTo does so for one port of the service and one of the backend.
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
		if _, err := client.Node.Command(context.Background(), "nft", "delete", "table", word, table); err != nil { // the test's own context has ended
			t.Error(err)
		}
	})
}

// echoTCP has a pod send back what connections bring, until the test ends.
func echoTCP(t *testing.T, p *lab.Pod, family int) {
	t.Helper()
	l := listenTCP(t, p, netip.AddrPortFrom(p.Addr(family), backendPort))
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

// listenTCP has a pod listen until the test ends.
func listenTCP(t *testing.T, p *lab.Pod, at netip.AddrPort) (l net.Listener) {
	t.Helper()
	await.OK(t, "a listener at "+at.String(), func() error {
		return p.Do(func() (err error) { l, err = net.Listen("tcp", at.String()); return err })
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// echoUDP has a pod send back what datagrams bring, until the test ends.
func echoUDP(t *testing.T, p *lab.Pod, family int) {
	t.Helper()
	c := listenOn(t, p, netip.AddrPortFrom(p.Addr(family), backendPort))
	go func() { // ends when the socket is closed
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
}

// asksTCP sends to an echo over TCP more than fits a window, and compares what comes back.
func asksTCP(t *testing.T, from *lab.Pod, to netip.AddrPort) {
	t.Helper()
	c, err := from.NS.Dial(await.Context(t, await.Patience), "tcp", to.String())
	if err != nil {
		t.Fatalf("from %s: %v", from.Name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("service "), 1<<17)
	wrote := make(chan error, 1)
	go func() { // ends with the connection at the latest
		_, err := c.Write(sent)
		wrote <- err
	}()
	got := make([]byte, len(sent))
	n, err := io.ReadFull(c, got)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("TCP from %s to %s: %d of %d bytes came back: %v", from.Name, to, n, len(sent), err)
	}
	_ = c.Close()
	<-wrote
}

// asksUDP sends datagrams to an echo from a connected socket, which takes answers from no other address. The last is sent in fragments.
func asksUDP(t *testing.T, from *lab.Pod, to netip.AddrPort) {
	t.Helper()
	c, err := from.NS.Dial(t.Context(), "udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, 64<<10)
	for _, size := range []int{1, 1000, 1372, 5000} {
		want := bytes.Repeat([]byte{byte(size), 0x5a}, size)[:size]
		if _, err := c.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(got); err != nil || !bytes.Equal(got[:n], want) {
			t.Fatalf("UDP from %s to %s: of %d bytes %d came back: %v", from.Name, to, size, n, err)
		}
	}
}

// directServiceRestart: while a's weftd is away, backends have something to say on connections that a has opened by way of a service, and are
// silent otherwise, as a database that notifies. The first packets that the new weftd sees are theirs: they come to a from the service's
// address, over the same connections.
func directServiceRestart(t *testing.T, a, sibling, b *lab.Pod) {
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
			l := listenTCP(t, backend, at)
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
