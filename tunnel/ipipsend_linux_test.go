package tunnel_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// Many packets leave in one system call. Those among them that the kernel refuses, here since the link's MTU
// is smaller than was known, stop no other, are counted as dropped, and change no order.
func TestIPIPSendsManyAtOnce(t *testing.T) {
	n, peer, a, _ := ipipAtRest(t)
	a.Do(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, 1300)
	})
	const count = 60
	refused := map[int]bool{0: true, 7: true, 8: true, 30: true, count - 1: true}
	var want [][]byte
	for i := range count {
		size := 100 + 3*i
		if refused[i] {
			size = 1400
		}
		var change func(*layers.IPv4)
		if i == 20 || i == 21 {
			change = func(ip *layers.IPv4) { ip.TOS = byte(encap.ECT0) } // the outer header has it, too
		}
		b := udp4(t, "10.1.1.5", "10.1.2.7", size, change)
		if !n.host.Inject(tunneltest.Datagram{Data: b}) {
			t.Fatal("the port is full")
		}
		if !refused[i] {
			want = append(want, b)
		}
	}
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	running(t, n.Engine)
	_ = peer.SetReadDeadline(time.Now().Add(within))
	for i, w := range want {
		b := make([]byte, 2000)
		var size int
		var bad error
		if err := raw.Read(func(fd uintptr) bool {
			size, _, bad = unix.Recvfrom(int(fd), b, 0)
			return bad != unix.EAGAIN
		}); err != nil || bad != nil {
			t.Fatalf("packet %d: %v, %v; %v", i, err, bad, n.Stats().Egress)
		}
		if got := b[20:size]; !bytes.Equal(got, w) || b[1] != w[1]&3 {
			t.Fatalf("packet %d: outer type of service %#x, %x, want %x", i, b[1], got, w)
		}
	}
	await.OK(t, "the counts", func() error {
		e := n.Stats().Egress
		if got := e.Drops[port.DropTooBig]; got != uint64(len(refused)) || e.Delivered != count-got ||
			e.Received != count {
			return fmt.Errorf("of %d packets %d dropped as too big, %d delivered, want %d and %d", e.Received, got,
				e.Delivered, len(refused), count-len(refused))
		}
		return nil
	})
}
