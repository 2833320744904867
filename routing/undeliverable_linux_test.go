package routing

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
)

// TestUndeliverableIsDropped has a peer that no longer answers on the link, and one whose port is down: what
// is sent there is dropped for reason underlay, on every path, and arrives again when the peer is back,
// though nobody but the sender says anything.
func TestUndeliverableIsDropped(t *testing.T) {
	for _, path := range []tunnel.Path{tunnel.PathRaw, tunnel.PathSocket, tunnel.PathPortable} {
		t.Run(path.String(), func(t *testing.T) {
			a, b := twoNodes(t, inNamespace(t), path)
			setting := func(n *node, name, value string) {
				t.Helper()
				if err := n.k.Do(func() error { return kernel.WriteSetting("/proc/sys/net/ipv4", name, value) }); err != nil {
					t.Fatal(err)
				}
			}
			setting(a, "neigh/eth0/retrans_time_ms", "50") // so that it fails soon
			to, from := b.listen(t, b.own.V4.Addr()), a.listen(t, a.own.V4.Addr())
			var sent uint64
			carries := func() error { sent++; return carries(from, to) }
			await.OK(t, "first packets", carries)
			// counted waits until each packet sent is, the ones that nobody waited for too. What the kernel itself
			// sends into the device is dropped for other reasons. Until a lost carrier is noticed, its queue is full.
			counted := func() (s tunnel.Flow) {
				t.Helper()
				await.OK(t, "counted", func() error {
					s = a.u.Engine().Stats().Egress
					if n := s.Delivered + s.Drops[port.DropUnderlay] + s.Drops[port.DropBusy]; n != sent {
						return fmt.Errorf("%d of %d: %+v", n, sent, s)
					}
					return nil
				})
				return s
			}
			if got := a.u.Status().Path; got != path.String() {
				t.Fatalf("path %s", got)
			}
			for _, fault := range []struct {
				name        string
				break_, end func()
			}{
				{"neighbour failed", func() {
					setting(b, "conf/eth0/arp_ignore", "8")
					a.run(t, "neigh flush dev eth0")
				}, func() { setting(b, "conf/eth0/arp_ignore", "0") }},
				{"no carrier", func() { b.run(t, "link set eth0 down") }, func() { b.run(t, "link set eth0 up") }},
			} {
				fault.break_()
				before := counted()
				await.OK(t, fault.name+": a packet is dropped", func() error {
					if err := carries(); err == nil {
						return errors.New("arrived")
					}
					if s := a.u.Engine().Stats().Egress; s.Drops[port.DropUnderlay] == before.Drops[port.DropUnderlay] {
						return fmt.Errorf("%+v", s)
					}
					return nil
				})
				was := counted()
				for range 50 {
					sent++
					if _, err := from.WriteTo([]byte("lost"), to.LocalAddr()); err != nil {
						t.Fatal(err)
					}
				}
				s := counted()
				d, u := s.Delivered-was.Delivered, s.Drops[port.DropUnderlay]-was.Drops[port.DropUnderlay]
				if d != 0 || u != 50 {
					t.Errorf("%s: of 50 packets %d count as delivered and %d as dropped for the underlay", fault.name, d, u)
				}
				await.OK(t, fault.name+": all are received", func() error { // counters are read one after the other
					s := a.u.Engine().Stats().Egress
					sum := s.Delivered
					for _, n := range s.Drops {
						sum += n
					}
					if sum != s.Received {
						return fmt.Errorf("%d received, %d delivered or dropped", s.Received, sum)
					}
					return nil
				})
				fault.end()
				await.OK(t, fault.name+": over", carries)
			}
		})
	}
}

// carries sends one packet, and waits shortly for it.
func carries(from, to net.PacketConn) error {
	if _, err := from.WriteTo([]byte("packet"), to.LocalAddr()); err != nil {
		return err
	}
	_ = to.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var b [16]byte
	_, _, err := to.ReadFrom(b[:])
	return err
}
