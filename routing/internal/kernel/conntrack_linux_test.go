package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel/natflow"
)

// TestTranslatedFlows has nftables translate real flows of both families, and others not: the kernel's
// connection tracking tells of those that were.
func TestTranslatedFlows(t *testing.T) {
	k := inNamespace(t)
	anybody := func(netip.Addr) bool { return true }
	if l, err := k.TranslatedFlows(anybody); err != nil || len(l) != 0 {
		t.Fatalf("in a namespace without flows: %v, %v", l, err)
	}
	netns.IP(t, "addr add 10.1.1.5/32 dev lo")
	netns.IP(t, "addr add fd00:1:1::5/128 dev lo nodad")
	netns.IP(t, "route add 10.96.0.10/32 dev lo src 10.1.1.5")
	netns.IP(t, "route add fd96::10/128 dev lo src fd00:1:1::5")
	netns.Command(t, "nft", `table inet service {
		chain out { type nat hook output priority -100;
			ip daddr 10.96.0.10 meta l4proto { tcp, udp } dnat ip to 10.1.1.5;
			ip6 daddr fd96::10 meta l4proto { tcp, udp } dnat ip6 to fd00:1:1::5;
		}
		chain tracked { type filter hook input priority 0; ct state new accept; }
	}`)
	type flow struct {
		natflow.Translated
		left, most time.Duration
	}
	var want []flow
	for _, f := range [][3]string{{"10.1.1.5", "10.96.0.10", "10.1.1.5"},
		{"fd00:1:1::5", "fd96::10", "fd00:1:1::5"}} {
		l, err := net.Listen("tcp", net.JoinHostPort(f[2], "8080"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		port := func(c net.Conn) netip.AddrPort { return netip.MustParseAddrPort(c.LocalAddr().String()) }
		u, err := net.Dial("udp", net.JoinHostPort(f[1], "8080"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = u.Close() })
		if _, err := u.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(f[1], "8080"), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		straight, err := net.Dial("tcp", net.JoinHostPort(f[2], "8080"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = straight.Close() })
		backend := netip.AddrPortFrom(netip.MustParseAddr(f[2]), 8080)
		want = append(want,
			flow{natflow.Translated{Client: port(u), Backend: backend, Proto: 17}, time.Second, 30 * time.Second},
			flow{natflow.Translated{Client: port(c), Backend: backend, Proto: 6}, 24 * time.Hour, 5 * 24 * time.Hour})
	}
	await.OK(t, "all flows are known", func() error { // the kernel may still have a datagram before it
		got, err := k.TranslatedFlows(anybody)
		if err != nil {
			return err
		}
		for _, w := range want {
			if !slices.ContainsFunc(got, func(g natflow.Translated) bool {
				return g.Client == w.Client && g.Backend == w.Backend && g.Proto == w.Proto && g.Left >= w.left &&
					g.Left <= w.most && !g.Closing
			}) {
				return fmt.Errorf("it does not tell of %+v", w)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("it tells of %+v, want %d", got, len(want))
		}
		return nil
	})
	only6, err := k.TranslatedFlows(netip.Addr.Is6)
	if err != nil || len(only6) != 2 {
		t.Errorf("of clients that have IPv6 it tells of %+v, %v", only6, err)
	}
}
