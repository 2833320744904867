package test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// hearsOnly sends something honest, which has to be the first that the ear hears.
func hearsOnly(t *testing.T, ear *net.UDPConn, from *lab.Pod, to netip.AddrPort) {
	t.Helper()
	c, err := from.NS.Dial(t.Context(), "udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("honest")); err != nil {
		t.Fatal(err)
	}
	if err := ear.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, src, err := ear.ReadFromUDPAddrPort(buf); err != nil || string(buf[:n]) != "honest" {
		t.Errorf("at %s %q was heard from %s (%v), want what is honest", to, buf[:n], src, err)
	}
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
			hearsOnly(t, ear, a, netip.AddrPortFrom(p.Addr(family), secretPort))
			_ = ear.Close()
		}
	}
}
