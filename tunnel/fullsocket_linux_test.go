package tunnel_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// TestFullSocketIsWaitedForOnceATurn sends to a neighbour that does not answer: the kernel keeps the
// datagrams until it gives up, and the socket is full. One datagram of a turn is waited for; the others meet
// the socket once each, and are dropped as what they are.
func TestFullSocketIsWaitedForOnceATurn(t *testing.T) {
	h, other := newHost(t), newHost(t)
	wire(t, h, other, "192.0.2.1/24", "192.0.2.2/24", 1500)
	n := &node{host: memory(t, netip.AddrPort{})}
	var err error
	if n.Engine, err = tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	id, err := n.Attach(n.host, tunnel.RoleHost)
	if err != nil {
		t.Fatal(err)
	}
	h.Do(t, func() error {
		s, err := port.ListenUDP(port.UDPOptions{Local: outer("192.0.2.1")})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := unix.SetsockoptInt(s.Queues()[0].PollFD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil {
			// the least there is
			return err
		}
		_, err = n.Attach(s, tunnel.RoleUnderlay)
		return err
	})
	s := spec()
	s.Peers = []tunnel.PeerSpec{{Name: "silent", Addr: addr("192.0.2.77"), Weft: true,
		Subnets: prefixes("10.1.2.0/24")}}
	swap(t, n.Engine, s)
	const count = 64 // what one turn reads
	packet := udp4(t, "10.1.1.5", "10.1.2.7", 1400, nil)
	for turn := range 3 {
		for range count {
			n.host.Inject(tunneltest.Datagram{Data: packet})
		}
		before, sent := n.Stats().Egress, n.Workers()[0].Writes
		if moved, err := n.Turn(id); err != nil || !moved {
			t.Fatal(moved, err)
		}
		now, sent := n.Stats().Egress, n.Workers()[0].Writes-sent
		busy, delivered := now.Drops[port.DropBusy]-before.Drops[port.DropBusy], now.Delivered-before.Delivered
		if busy+delivered != count || busy < count-8 || sent > count+4 { // a signal ends a wait early
			t.Errorf("turn %d: %d delivered, %d dropped as busy, in %d sends", turn, delivered, busy, sent)
		}
	}
}
