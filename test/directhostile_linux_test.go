package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
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

// throw sends one packet. A queue that is full takes none, which is no error.
func (h *thrower) throw(packet []byte) error {
	kind := uint16(unix.ETH_P_IP)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		kind = unix.ETH_P_IPV6
	}
	to := &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: h.link}
	err := unix.Sendto(h.fd, packet, unix.MSG_DONTWAIT, to)
	if err == unix.ENOBUFS || err == unix.EAGAIN {
		return nil
	}
	return err
}

// directHostile has pod a send with addresses that are not its own, by raw sockets and through the tunnel's
// port. Nothing of it arrives, and each forged packet is counted. What else a hostile pod may send, package
// tunnel's tests show.
func directHostile(t *testing.T, l *lab.Lab, a, sibling, b *lab.Pod) {
	outside := newcomer(t, l, 78)
	hand := throwFrom(t, a)
	t.Run("forged sources", func(t *testing.T) { directForges(t, hand, a, sibling, b, outside) })
	t.Run("the tunnel's port", func(t *testing.T) { directTunnels(t, a, sibling, b) })
}

// directForges sends from every address that is not a's own to everybody that there is, whole and in
// fragments.
func directForges(t *testing.T, hand *thrower, a, sibling, b *lab.Pod, outside *lab.Host) {
	ears := map[string]*net.UDPConn{}
	for _, h := range []*lab.Host{sibling.Host, b.Host, a.Node.Host, b.Node.Host, outside} {
		ears[h.Name] = hear(t, h, secretPort)
	}
	before := status(t, a.Node, await.Patience, func(statusJSON) error { return nil }).Counters.Egress.dropped(
		"foreign_source")
	sent := uint64(0)
	for _, family := range []int{4, 6} {
		own := map[int]netip.Addr{4: a.Node.Net.V4.Masked().Addr(), 6: a.Node.Net.V6.Masked().Addr()}[family]
		other := map[int]netip.Addr{4: b.Node.Net.V4.Masked().Addr(), 6: b.Node.Net.V6.Masked().Addr()}[family]
		under := map[int][]string{4: {a.Node.Underlay4.String(), b.Node.Underlay4.String(), "198.18.0.78"},
			6: {a.Node.Underlay6.String(), b.Node.Underlay6.String(), "fd18::4e"}}[family]
		nobody := map[int][]string{4: {"172.31.0.9", "127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0"},
			6: {"2001:db8::9", "::1", "ff02::1", "::", "::ffff:10.42.0.1"}}[family]
		pods := []string{sibling.Addr(family).String(), b.Addr(family).String()}
		for _, src := range append(append(append([]string{own.String(), other.String()}, under...), nobody...),
			pods...) {
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
			a.Node.Name:  map[int]netip.Addr{4: a.Node.Underlay4, 6: a.Node.Underlay6}[family],
			outside.Name: netip.MustParseAddr(map[int]string{4: "198.18.0.78", 6: "fd18::4e"}[family])} {
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

// fragmentOf marks a copy of an IPv4 packet as a later fragment. An IPv6 packet becomes one whose next header
// is unknown.
func fragmentOf(packet []byte) []byte {
	f := bytes.Clone(packet)
	if f[0]>>4 == 6 {
		f[6] = 253 // RFC 3692: for experiments
		return f
	}
	f[6], f[7] = 0, 64 // 512 bytes in
	return headerSum4(f)
}

// headerSum4 fills in the checksum of an IPv4 header.
func headerSum4(p []byte) []byte {
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], encap.Checksum(p[:20]))
	return p
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
