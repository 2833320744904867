package tunnel_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel/port"
)

// gatherPacket is a datagram of size bytes.
type gatherPacket struct {
	to   string
	size int
	ecn  encap.ECN
}

// gather sends packets from an offload socket over a link of 1500 bytes to 192.0.2.2,
// in one WriteBatch, and returns the numbers of those that arrive there.
func gather(t *testing.T, packets []gatherPacket) (got []int, state port.OffloadState) {
	t.Helper()
	a, b := newHost(t), newHost(t)
	wire(t, a, b, "192.0.2.1/24", "192.0.2.2/24", 1500)
	var s *port.OffloadSocket
	var peer *port.UDPSocket
	a.Do(t, func() error { return defaultRoute("192.0.2.2") })
	a.Do(t, func() (err error) {
		s, err = port.ListenOffload(port.UDPOptions{Local: outer("192.0.2.1")})
		return err
	})
	b.Do(t, func() (err error) {
		peer, err = port.ListenUDP(port.UDPOptions{Local: outer("192.0.2.2")})
		return err
	})
	t.Cleanup(func() { _, _ = s.Close(), peer.Close() })

	r := port.NewRing()
	var ps []*port.Packet
	for i, p := range packets {
		slot := r.Slot()
		slot.Space()[0] = byte(i)
		slot.Outer, slot.OuterECN = outer(p.to), p.ecn
		r.Commit(p.size)
		ps = append(ps, slot)
	}
	awaitPath(t, s, peer)
	a.Do(t, func() error { s.WriteBatch(r, ps); return nil })
	poll := []unix.PollFd{{Fd: int32(peer.Queues()[0].PollFD()), Events: unix.POLLIN}}
	in := make([]byte, port.MaxPacket)
	for end := time.Now().Add(within); time.Now().Before(end); {
		if n, _ := unix.Poll(poll, 200); n == 0 {
			break // veth delivers within the call
		}
		if n, _, err := unix.Recvfrom(peer.Queues()[0].PollFD(), in, 0); err == nil && n > 0 {
			got = append(got, int(in[0]))
		}
	}
	return got, s.Offloads()[0].State
}

// awaitPath sends until something arrives: a new link has no carrier and no neighbour
// for a moment, and what is sent then is lost. Then it empties the peer's socket.
func awaitPath(t *testing.T, s *port.OffloadSocket, peer *port.UDPSocket) {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(peer.Queues()[0].PollFD()), Events: unix.POLLIN}}
	b := make([]byte, 16)
	sa := &unix.SockaddrInet4{Addr: peer.LocalAddr().Addr().As4(), Port: int(peer.LocalAddr().Port())}
	for end := time.Now().Add(within); ; {
		_ = unix.Sendto(s.Queues()[0].PollFD(), []byte{0}, 0, sa)
		if n, _ := unix.Poll(poll, 20); n > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing crosses the link")
		}
	}
	for {
		if n, _ := unix.Poll(poll, 50); n == 0 {
			return
		}
		_, _, _ = unix.Recvfrom(peer.Queues()[0].PollFD(), b, 0)
	}
}

// TestGatherKeepsOrder sends one flow of which a packet carries another ECN field: a
// congestion mark, or a retransmission, which is not ECN capable (RFC 3168 section 6.1.5).
func TestGatherKeepsOrder(t *testing.T) {
	const to = "192.0.2.2"
	got, _ := gather(t, []gatherPacket{
		{to, 1000, encap.ECT0}, {to, 1000, encap.CE}, {to, 1000, encap.ECT0}, {to, 1000, encap.NotECT},
		{to, 1000, encap.ECT0},
	})
	if want := []int{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("arrived as %v, want %v", got, want)
	}
}

// TestGatherKeepsOffload refuses sends for what is no fault of UDP_SEGMENT: what is too
// large for a link, or a peer that cannot be sent to. What can be sent is.
func TestGatherKeepsOffload(t *testing.T) {
	const to, nowhere = "192.0.2.2", "255.255.255.255" // EACCES
	for _, tt := range []struct {
		packets []gatherPacket
		want    []int
	}{
		{[]gatherPacket{{nowhere, 1000, 0}, {nowhere, 1000, 0}, {to, 1000, 0}, {to, 1000, 0}}, []int{2, 3}},
		{[]gatherPacket{{to, 1473, 0}, {to, 1473, 0}, {to, 100, 0}, {to, 1472, 0}}, []int{2, 3}}, // EMSGSIZE
	} {
		t.Run(fmt.Sprint(tt.packets[0]), func(t *testing.T) {
			got, state := gather(t, tt.packets)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v arrived, want %v", got, tt.want)
			}
			if state != port.OffloadOn {
				t.Errorf("the offload is %v", state)
			}
		})
	}
}
