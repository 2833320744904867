package presence

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

// on does ip in the namespace of k.
func on(t *testing.T, k *kernel.Kernel, args string) {
	t.Helper()
	if err := k.Do(func() error { _, err := netns.TryIP(args); return err }); err != nil {
		t.Fatal(err)
	}
}

// TestAlive asks a host for its addresses of both families while its kernel answers and something listens on
// the overlay's port, while nothing does, while it is silent, and for addresses of one's own.
func TestAlive(t *testing.T) {
	a, b := inNamespace(t), newNamespace(t)
	on(t, a, "link add eth0 type veth peer name far")
	on(t, a, fmt.Sprintf("link set far netns /proc/%d/fd/%d", os.Getpid(), b.NS))
	on(t, b, "link set far name eth0")
	for i, n := range []*kernel.Kernel{a, b} {
		on(t, n, "link set eth0 up")
		on(t, n, fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", i+1))
		on(t, n, fmt.Sprintf("addr add 2001:db8::%d/64 dev eth0 nodad", i+1))
	}
	on(t, a, "addr add 192.0.2.7/32 dev eth0")
	under := underlay.Link{Name: "eth0", Addr4: addr("192.0.2.1"), Addr6: addr("2001:db8::1")}
	alive := Alive{Kernel: a, From: func() underlay.Link { return under }, Port: 8285}
	four, six := lease.Attrs{PublicIP: addr("192.0.2.2")}, lease.Attrs{PublicIPv6: addr("2001:db8::2")}
	asked := func(what string, at lease.Attrs, want bool) {
		t.Helper()
		// An answer may take its time on a busy machine; that there is none is found out by the first round alike.
		for end := time.Now().Add(await.Patience); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			got := alive.Answers(ctx, at)
			cancel()
			if got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s, %v: %v, want %v", what, at.Address(), got, want)
			}
		}
	}
	asked("nobody listens", four, false)
	asked("nobody listens", six, false)
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(four.PublicIP, 8285),
		netip.AddrPortFrom(six.PublicIPv6, 8285)} {
		var c net.PacketConn
		if err := b.Do(func() (err error) { c, err = net.ListenPacket("udp", at.String()); return err }); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	asked("alive", four, true)
	asked("alive", six, true)
	asked("one of two", lease.Attrs{PublicIP: addr("192.0.2.99"), PublicIPv6: six.PublicIPv6}, true)
	asked("our own", lease.Attrs{PublicIP: addr("192.0.2.1")}, false)
	asked("our own, another", lease.Attrs{PublicIP: addr("192.0.2.7")}, false)
	asked("nobody there", lease.Attrs{PublicIP: addr("192.0.2.99")}, false)
	alive.Port = 0
	asked("a type without a port", four, true)
	if !alive.tcp(t.Context(), under.Addr4, four.PublicIP) {
		t.Error("without ICMP sockets a living host is silent")
	}
	on(t, b, "link set eth0 down")
	asked("silent", four, false)
	asked("silent", six, false)
}
