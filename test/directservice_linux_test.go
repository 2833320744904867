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
	word, to := map[int]string{4: "ip", 6: "ip6"}[family], netip.AddrPortFrom(backend.Addr(family), backendPort)
	service := map[int]string{4: service4, 6: service6}[family]
	sh(t, client.Node.Host, fmt.Sprintf(`nft -f - <<-END
		table %[1]s service {
			chain in { type nat hook prerouting priority dstnat; %[1]s daddr %[2]s meta l4proto { tcp, udp } th dport %[3]d dnat to %[4]s; }
			chain out { type nat hook postrouting priority srcnat; %[1]s saddr %[5]s %[1]s daddr %[5]s masquerade; }
		}
	END`, word, service, servicePort, to, backend.Addr(family)))
	t.Cleanup(func() {
		if _, err := client.Node.Command(context.Background(), "nft", "delete", "table", word, "service"); err != nil { // the test's own context has ended
			t.Error(err)
		}
	})
}

// echoTCP has a pod send back what connections bring, until the test ends.
func echoTCP(t *testing.T, p *lab.Pod, family int) {
	t.Helper()
	var l net.Listener
	at := netip.AddrPortFrom(p.Addr(family), backendPort)
	await.OK(t, "a listener at "+at.String(), func() error {
		return p.Do(func() (err error) { l, err = net.Listen("tcp", at.String()); return err })
	})
	t.Cleanup(func() { _ = l.Close() })
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
