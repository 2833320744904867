package routing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel/port"
)

// frame builds an Ethernet frame with a UDP datagram to port 8285; the parts before it are given.
func frame(dst encap.MAC, etherType []byte, ip []byte, udp []byte) []byte {
	return slices.Concat(dst[:], macPeer[:], etherType, ip, udp)
}

// ip4 is an IPv4 header with options, for a payload of that many bytes; frag is the field of
// flags and offset.
func ip4(src, dst string, options []byte, frag uint16, payload int) []byte {
	b := make([]byte, 20, 20+len(options))
	b[0], b[8], b[9] = byte(0x45+len(options)/4), 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(options)+payload))
	binary.BigEndian.PutUint16(b[4:], 7)
	binary.BigEndian.PutUint16(b[6:], frag)
	copy(b[12:], addr(src).AsSlice())
	copy(b[16:], addr(dst).AsSlice())
	b = append(b, options...)
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b))
	return b
}

func ip6(src, dst string, next byte, payload int) []byte {
	b := []byte{0x60, 0, 0, 0, 0, 0, next, 64}
	binary.BigEndian.PutUint16(b[4:], uint16(payload))
	return slices.Concat(b, addr(src).AsSlice(), addr(dst).AsSlice())
}

func datagram(port uint16, src, dst netip.Addr, text string) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 8285), port)
	b = append(binary.BigEndian.AppendUint16(b, uint16(8+len(text))), 0, 0)
	b = append(b, text...)
	binary.BigEndian.PutUint16(b[6:],
		^encap.Fold(encap.Sum(b, encap.PseudoHeaderSum(src, dst, unix.IPPROTO_UDP, len(b)))))
	return b
}

// TestIngressMatchesThePacketSocket sends what may and may not be the tunnel's, and sees that each
// datagram arrives once: what the packet socket takes, the rule keeps from the UDP socket, and nothing else.
func TestIngressMatchesThePacketSocket(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	ip(t, "addr add 192.0.2.77/24 dev eth0")
	ip(t, "link set eth0 address %v", macUs)
	u := newTestUDP(t, k, true)
	apply(t, u, testSet("10.5.1.0/24", false))
	start(t, u)
	send := sender(t, k, "eth0-far")

	v4, v6 := []byte{8, 0}, []byte{0x86, 0xdd}
	vlan := []byte{0x81, 0, 0, 5}
	a, b := addr("192.0.2.2"), addr("192.0.2.1")
	plain := datagram(8285, a, b, "garbage")
	six := datagram(8285, addr("2001:db8::2"), addr("2001:db8::1"), "garbage")
	hopByHop := []byte{unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0}
	header := func(frag uint16) []byte { return ip4("192.0.2.2", "192.0.2.1", nil, frag, 8) }
	broadcast := encap.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, c := range []struct {
		name   string
		frames [][]byte
		// received is how many datagrams the data plane gets, dropped how many the rule takes from the stack.
		received, dropped uint64
	}{
		{"a datagram", [][]byte{frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)), plain)}, 1, 1},
		{"not to be fragmented", [][]byte{frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0x4000, len(plain)),
			plain)}, 1, 1},
		{"IPv6", [][]byte{frame(macUs, v6, ip6("2001:db8::2", "2001:db8::1", unix.IPPROTO_UDP, len(six)), six)}, 1,
			1},
		{"two fragments", [][]byte{frame(macUs, v4, header(0x2000), plain[:8]),
			frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", nil, 1, len(plain)-8), plain[8:])}, 1, 0},
		{"IP options", [][]byte{frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", []byte{1, 1, 1, 0}, 0, len(plain)),
			plain)}, 1, 0},
		{"an extension header", [][]byte{frame(macUs, v6, ip6("2001:db8::2", "2001:db8::1", 0, len(six)+8),
			slices.Concat(hopByHop, six))}, 1, 0},
		{"to broadcast in Ethernet alone",
			[][]byte{frame(broadcast, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)), plain)}, 1, 0},
		{"to another MAC", [][]byte{frame(macGate, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)), plain)},
			0, 0},
		{"with a VLAN tag", [][]byte{frame(macUs, slices.Concat(vlan, v4),
			ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)), plain)}, 0, 0},
		{"with a priority tag", [][]byte{frame(macUs, slices.Concat([]byte{0x81, 0, 0xe0, 0}, v4),
			ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)), plain)}, 1, 0},
		{"to another port", [][]byte{frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)),
			datagram(8286, a, b, "garbage"))}, 0, 0},
		{"to another address of ours", [][]byte{frame(macUs, v4, ip4("192.0.2.2", "192.0.2.77", nil, 0, len(plain)),
			datagram(8285, a, addr("192.0.2.77"), "garbage"))}, 0, 0},
		{"a wrong UDP checksum", [][]byte{frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0, len(plain)),
			append(slices.Clone(plain[:14]), 'x'))}, 1, 1},
		{"cut short", [][]byte{frame(macUs, v4, header(0), plain[:3])}, 0, 0},
	} {
		received, dropped := u.Engine().Stats().Ingress.Received, dropCounters(t)
		for _, f := range c.frames {
			send(f)
		}
		// A last one that is known to arrive shows that those before have been dealt with.
		last := u.Engine().Stats().Ingress.Drops[port.DropMartian]
		end := martian()
		send(frame(macUs, v4, ip4("192.0.2.2", "192.0.2.1", nil, 0, 8+len(end)), datagram(8285, a, b, end)))
		await.OK(t, "the last datagram", func() error {
			if u.Engine().Stats().Ingress.Drops[port.DropMartian] == last {
				return errors.New("not yet")
			}
			return nil
		})
		await.OK(t, c.name, func() error {
			r, d := u.Engine().Stats().Ingress.Received-received-1, dropCounters(t)-dropped-1
			if r != c.received || d != c.dropped {
				return fmt.Errorf("%d received, want %d; %d kept from the stack, want %d", r, c.received, d, c.dropped)
			}
			return nil
		})
	}
}

// martian is an inner packet that is dropped for a reason of its own.
func martian() string {
	b := ip4("127.0.0.1", "10.5.1.0", nil, 0, 8)
	return string(append(b, make([]byte, 8)...))
}

// sender sends frames on a link of the namespace.
func sender(t *testing.T, k *kernel.Kernel, link string) func([]byte) {
	t.Helper()
	d, err := k.Device(link)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	to := &unix.SockaddrLinklayer{Ifindex: d.Index, Protocol: bits.ReverseBytes16(unix.ETH_P_IP)}
	return func(b []byte) {
		t.Helper()
		if err := unix.Sendto(fd, b, 0, to); err != nil {
			t.Fatal(err)
		}
	}
}

// dropCounters is how many packets the ingress filters have dropped.
func dropCounters(t *testing.T) (n uint64) {
	t.Helper()
	out := netns.Command(t, "nft", "list", "ruleset")
	for _, m := range regexp.MustCompile(`counter packets (\d+) `).FindAllStringSubmatch(strings.TrimSpace(out),
		-1) {
		v, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += v
	}
	return n
}
