package test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/test/lab"
)

// thrower sends whole packets out of a pod's interface, whatever is in them, past the pod's own IP stack. The
// interface is a TUN, whose packets have no link header.
type thrower struct {
	fd   int
	link int
}

func throwFrom(t *testing.T, p *lab.Pod) *thrower {
	t.Helper()
	l, err := p.NS.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	h := &thrower{link: l.Attrs().Index}
	if err := p.Do(func() (err error) {
		h.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(h.fd) })
	return h
}

// throw sends one packet. A queue that is full takes none, which is no error: who floods meets it.
func (h *thrower) throw(packet []byte) error {
	kind := uint16(unix.ETH_P_IP)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		kind = unix.ETH_P_IPV6
	}
	if err := h.send(kind, packet, unix.MSG_DONTWAIT); err != unix.ENOBUFS && err != unix.EAGAIN {
		return err
	}
	return nil
}

func (h *thrower) send(kind uint16, packet []byte, flags int) error {
	return unix.Sendto(h.fd, packet, flags, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: h.link})
}

// directHostile has pod a do what it can to others with raw sockets and addresses that are not its own. Nothing of it arrives, each forged packet
// is counted, and the others' traffic goes on beside a flood.
func directHostile(t *testing.T, l *lab.Lab, a, sibling, b *lab.Pod) {
	outside := newcomer(t, l, 78)
	hand := throwFrom(t, a)
	t.Run("forged sources", func(t *testing.T) { directForges(t, hand, a, sibling, b, outside) })
	t.Run("broken packets", func(t *testing.T) { directBreaks(t, hand, a, sibling, b) })
	t.Run("superpackets", func(t *testing.T) { directCuts(t, hand, a, sibling, b) })
	t.Run("claims about the path", func(t *testing.T) { directClaims(t, hand, a, sibling, b) })
	t.Run("the tunnel's port", func(t *testing.T) { directTunnels(t, a, sibling, b) })
	t.Run("flood", func(t *testing.T) { directFloods(t, hand, a, sibling, b) })
}

// directForges sends from every address that is not a's own to everybody that there is, whole and in fragments.
func directForges(t *testing.T, hand *thrower, a, sibling, b *lab.Pod, outside *lab.Host) {
	ears := map[string]*net.UDPConn{}
	for _, h := range []*lab.Host{sibling.Host, b.Host, a.Node.Host, b.Node.Host, outside} {
		ears[h.Name] = hear(t, h, secretPort)
	}
	before := status(t, a.Node, await.Patience, func(statusJSON) error { return nil }).Counters.Egress.dropped("foreign_source")
	sent := uint64(0)
	for _, family := range []int{4, 6} {
		own := map[int]netip.Addr{4: a.Node.Net.V4.Masked().Addr(), 6: a.Node.Net.V6.Masked().Addr()}[family]
		other := map[int]netip.Addr{4: b.Node.Net.V4.Masked().Addr(), 6: b.Node.Net.V6.Masked().Addr()}[family]
		under := map[int][]string{4: {a.Node.Underlay4.String(), b.Node.Underlay4.String(), "198.18.0.78"}, 6: {a.Node.Underlay6.String(), b.Node.Underlay6.String(), "fd18::4e"}}[family]
		nobody := map[int][]string{4: {"172.31.0.9", "127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0"}, 6: {"2001:db8::9", "::1", "ff02::1", "::", "::ffff:10.42.0.1"}}[family]
		pods := []string{sibling.Addr(family).String(), b.Addr(family).String()}
		for _, src := range append(append(append([]string{own.String(), other.String()}, under...), nobody...), pods...) {
			for _, dst := range append(append([]string{own.String(), other.String()}, under...), pods...) {
				if src == dst {
					continue
				}
				whole := inner(t, src, dst, secretPort, 64, "forged")
				for _, packet := range [][]byte{whole, fragmentOf(whole)} {
					if err := hand.throw(packet); err != nil {
						t.Fatal(err)
					}
					sent++
				}
			}
		}
	}
	status(t, a.Node, await.Patience, func(s statusJSON) error {
		if got := s.Counters.Egress.dropped("foreign_source") - before; got < sent {
			return fmt.Errorf("%d of %d forged packets are dropped: %+v", got, sent, s.Counters.Egress.Drops)
		}
		return nil
	})
	for _, family := range []int{4, 6} { // what is heard first is honest, so nothing forged has come before
		for name, to := range map[string]netip.Addr{sibling.Name: sibling.Addr(family), b.Name: b.Addr(family),
			a.Node.Name: map[int]netip.Addr{4: a.Node.Underlay4, 6: a.Node.Underlay6}[family], outside.Name: netip.MustParseAddr(map[int]string{4: "198.18.0.78", 6: "fd18::4e"}[family])} {
			hearsOnly(t, ears[name], a, netip.AddrPortFrom(to, secretPort))
		}
	}
	if ear := ears[b.Node.Name]; ear.SetReadDeadline(time.Now().Add(time.Millisecond)) == nil {
		if n, from, err := ear.ReadFromUDPAddrPort(make([]byte, 100)); err == nil {
			t.Errorf("%s heard %d bytes from %s", b.Node.Name, n, from)
		}
	}
}

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

// fragmentOf marks a copy of an IPv4 packet as a later fragment. An IPv6 packet becomes one whose next header is unknown.
func fragmentOf(packet []byte) []byte {
	f := bytes.Clone(packet)
	if f[0]>>4 == 6 {
		f[6] = 253 // RFC 3692: for experiments
		return f
	}
	f[6], f[7] = 0, 64 // 512 bytes in
	return headerSum4(f)
}

// directBreaks sends what is no packet, or contradicts itself, with a's own address where there is one.
func directBreaks(t *testing.T, hand *thrower, a, sibling, b *lab.Pod) {
	before := status(t, a.Node, await.Patience, func(statusJSON) error { return nil }).Counters.Egress
	sent := uint64(0)
	for _, to := range []*lab.Pod{sibling, b} {
		for _, family := range []int{4, 6} {
			good := inner(t, a.Addr(family).String(), to.Addr(family).String(), secretPort, 64, "broken")
			for _, breakIt := range []func(b []byte) []byte{
				func(b []byte) []byte { return b[:1] },
				func(b []byte) []byte { return b[:19] },
				func(b []byte) []byte { b[0] = b[0] & 0x0f; return b },        // version 0
				func(b []byte) []byte { b[0] = 0x41; return b },               // a header of 4 bytes
				func(b []byte) []byte { b[2], b[3] = 0xff, 0xff; return b },   // longer than it is, as IPv4
				func(b []byte) []byte { b[4], b[5] = 0xff, 0xff; return b },   // the same as IPv6
				func(b []byte) []byte { b[2], b[3] = 0, 1; return b },         // shorter than its header
				func(b []byte) []byte { return append(b[:20:20], b[24:]...) }, // without its middle
				func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) },
			} {
				if err := hand.throw(breakIt(bytes.Clone(good))); err != nil {
					t.Fatal(err)
				}
				sent++
			}
		}
	}
	status(t, a.Node, await.Patience, func(s statusJSON) error {
		if s.Counters.Egress.Received < before.Received+sent || !s.Counters.Egress.balanced() {
			return fmt.Errorf("%d packets were sent: %+v, before %+v", sent, s.Counters.Egress, before)
		}
		return nil
	})
	for _, family := range []int{4, 6} {
		for _, p := range []*lab.Pod{sibling, b} {
			reach(t, await.Patience, a, p, family)
		}
	}
}

// directCuts sends superpackets that the node would have to cut into thousands of packets each. It makes none of them.
func directCuts(t *testing.T, hand *thrower, a, sibling, b *lab.Pod) {
	const many, size, segment = 20, 60_000, 8
	if err := unix.SetsockoptInt(hand.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	before := status(t, a.Node, await.Patience, func(statusJSON) error { return nil }).Counters.Egress
	for i := range many {
		to := []*lab.Pod{sibling, b}[i%2]
		tcp := make([]byte, 20+size)
		tcp[12], tcp[13] = 5<<4, 0x10 // a header of 20 bytes, and ACK
		p := append(inner(t, a.V4.String(), to.V4.String(), secretPort, 64, "")[:20:20], tcp...)
		p[2], p[3], p[9] = byte(len(p)>>8), byte(len(p)&0xff), unix.IPPROTO_TCP
		h := make([]byte, encap.VNetHdrLen)
		encap.VNetHdr{Flags: encap.VNetNeedsCsum, GSOType: encap.VNetGSOTCPv4, HdrLen: 40, GSOSize: segment,
			CsumStart: 20, CsumOffset: encap.ChecksumOffsetTCP}.Put(h)
		if err := hand.send(unix.ETH_P_IP, append(h, headerSum4(p)...), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetsockoptInt(hand.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 0); err != nil {
		t.Fatal(err)
	}
	now := status(t, a.Node, await.Patience, func(s statusJSON) error {
		if n := s.Counters.Egress.dropped("too_many_segments") - before.dropped("too_many_segments"); n != many {
			return fmt.Errorf("%d of %d superpackets are dropped: %+v", n, many, s.Counters.Egress.Drops)
		}
		return nil
	}).Counters.Egress
	if n := now.Delivered - before.Delivered; n > size/segment {
		t.Errorf("%d packets were made of them", n)
	}
	for _, p := range []*lab.Pod{sibling, b} {
		reach(t, await.Patience, a, p, 4)
	}
}

// directClaims sends ICMP with a's own address to its node and to the others, as if a router on the way of their packets took only 600 bytes. Their
// full-size packets pass as before.
func directClaims(t *testing.T, hand *thrower, a, sibling, b *lab.Pod) {
	n := a.Node
	for _, c := range []struct{ victim, src, dst netip.Addr }{
		{n.Underlay4, n.Underlay4, b.Node.Underlay4},
		{b.Node.Underlay4, b.Node.Underlay4, n.Underlay4},
		{sibling.V4, sibling.V4, b.V4},
	} {
		quoted := inner(t, c.src.String(), c.dst.String(), 8285, 64, "quoted by a liar, as if it were a datagram")
		for range 20 {
			if err := hand.throw(tooBig4(t, a.V4, c.victim, 600, quoted)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, family := range []int{4, 6} {
		fullSize(t, sibling, b, family, n.Net.MTU)
		fullSize(t, b, sibling, family, n.Net.MTU)
	}
}

// tooBig4 is an ICMP message that says that a packet needs to be fragmented (RFC 1191).
func tooBig4(t *testing.T, src, dst netip.Addr, mtu int, quoted []byte) []byte {
	t.Helper()
	m := append([]byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}, quoted...)
	sum := sum16(m)
	m[2], m[3] = byte(sum>>8), byte(sum)
	p := inner(t, src.String(), dst.String(), 1, 64, "")
	p = append(p[:20:20], m...)
	p[2], p[3], p[9] = byte(len(p)>>8), byte(len(p)), 1
	p[6], p[7] = 0, 0
	return headerSum4(p)
}

// headerSum4 fills in the checksum of an IPv4 header.
func headerSum4(p []byte) []byte {
	p[10], p[11] = 0, 0
	sum := sum16(p[:20])
	p[10], p[11] = byte(sum>>8), byte(sum)
	return p
}

// sum16 is the Internet's checksum (RFC 1071).
func sum16(b []byte) uint16 {
	sum := uint32(0)
	for i := range b {
		sum += uint32(b[i]) << (8 * uint(1-i%2))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// directTunnels has a, with its own address, send to the nodes' tunnel port what the other node could have sent. The host would masquerade it, so
// that it looked like the node's own.
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

// directFloods has a send as fast as it can while the others talk: forged packets, such as want an error for an answer, such as go nowhere, and such
// as arrive. What the others say arrives whole.
func directFloods(t *testing.T, hand *thrower, a, sibling, b *lab.Pod) {
	var mix [][]byte
	for _, family := range []int{4, 6} {
		own := a.Addr(family).String()
		hole := map[int]string{4: "10.42.255.9", 6: "fd42:0:0:fffe::9"}[family]
		mix = append(mix,
			inner(t, sibling.Addr(family).String(), b.Addr(family).String(), secretPort, 64, "forged"),
			inner(t, own, b.Addr(family).String(), secretPort, 1, "without a hop left"),
			inner(t, own, hole, secretPort, 64, "to nobody"),
			inner(t, own, sibling.Addr(family).String(), 9, 64, "to a port that nobody listens at"),
			fragmentOf(inner(t, own, sibling.Addr(family).String(), secretPort, 64, "a fragment without others")))
	}
	before := status(t, a.Node, await.Patience, func(statusJSON) error { return nil }).Counters.Egress
	stop, sent := make(chan struct{}), make(chan int)
	go func() { // ends when stop is closed
		n := 0
		for {
			for range 100 {
				if hand.throw(mix[n%len(mix)]) == nil {
					n++
				}
			}
			select {
			case <-stop:
				sent <- n
				return
			default:
			}
		}
	}()
	for _, family := range []int{4, 6} {
		stream(t, sibling.Endpoint(family), b.Endpoint(family))
		answered(t, sibling, b, family, 100)
	}
	close(stop)
	thrown := <-sent
	after := status(t, a.Node, await.Patience, func(s statusJSON) error {
		if !s.Counters.Egress.balanced() || !s.Counters.Ingress.balanced() {
			return fmt.Errorf("received is not delivered and dropped: %+v", s.Counters)
		}
		return nil
	}).Counters.Egress
	t.Logf("%d packets were thrown, of which the node read %d and dropped %d as forged", thrown, after.Received-before.Received, after.dropped("foreign_source")-before.dropped("foreign_source"))
	if after.dropped("foreign_source") == before.dropped("foreign_source") || after.dropped("ttl") == before.dropped("ttl") {
		t.Errorf("the flood is not counted: %+v, before %+v", after.Drops, before.Drops)
	}
	log, err := os.ReadFile(a.Node.Daemon.LogFile)
	if lines := bytes.Count(log, []byte("\n")); err != nil || lines > 500 {
		t.Errorf("%s says %d lines, %v", a.Node.Name, lines, err)
	}
}

// answered sends datagrams to and fro, each after the answer to the one before. One that is lost is sent again.
func answered(t *testing.T, from, to *lab.Pod, family, count int) {
	t.Helper()
	echoUDP(t, to, family)
	c, err := from.NS.Dial(t.Context(), "udp", netip.AddrPortFrom(to.Addr(family), backendPort).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	again, got := 0, make([]byte, 100)
	for i := range count {
		want := fmt.Sprintf("question %d", i)
		await.OK(t, want, func() error {
			if _, err := c.Write([]byte(want)); err != nil {
				return err
			}
			for { // what comes late is an answer to an earlier one
				if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
					return err
				}
				n, err := c.Read(got)
				if err != nil {
					again++
					return err
				}
				if string(got[:n]) == want {
					return nil
				}
			}
		})
	}
	t.Logf("IPv%d: of %d questions %d were asked again", family, count, again)
}
