package test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/lab"
	"weft/test/netns"
)

// sniffer sees what passes a device, outer headers included.
type sniffer struct {
	t *testing.T
	f *os.File
}

// sniff listens on a device of a host. In the wire's namespace the device of node N is "nodeN".
func sniff(t *testing.T, h *lab.Host, device string) *sniffer {
	t.Helper()
	var fd int
	err := h.Do(func() error {
		l, err := h.NS.Netlink().LinkByName(device)
		if err != nil {
			return err
		}
		// in network order
		all := binary.NativeEndian.Uint16([]byte{byte(unix.ETH_P_ALL >> 8), byte(unix.ETH_P_ALL)})
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all)); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // the default may do
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index})
	})
	if err != nil {
		t.Fatalf("sniff %s on %s: %v", device, h.Name, err)
	}
	s := &sniffer{t, os.NewFile(uintptr(fd), device)}
	t.Cleanup(func() { _ = s.f.Close() })
	return s
}

// next returns the next packet that ok accepts.
func (s *sniffer) next(limit time.Duration, ok func(gopacket.Packet) bool) gopacket.Packet {
	s.t.Helper()
	p, err := s.look(limit, ok)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// look is next for who asks again: an error says that there was no such packet.
func (s *sniffer) look(limit time.Duration, ok func(gopacket.Packet) bool) (gopacket.Packet, error) {
	if err := s.f.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	for b := make([]byte, 64<<10); ; {
		n, err := s.f.Read(b)
		if err != nil {
			return nil, fmt.Errorf("no such packet on %s: %w", s.f.Name(), err)
		}
		p := gopacket.NewPacket(append([]byte{}, b[:n]...), proto.LayerTypeEthernet, gopacket.Default)
		if ok(p) {
			return p, nil
		}
	}
}

// newcomer puts a host that runs no weftd on the wire, at 198.18.0.N.
func newcomer(t *testing.T, l *lab.Lab, number int) *lab.Host {
	t.Helper()
	name := fmt.Sprintf("newcomer%d", number)
	ns := netns.New(t, name)
	h := &lab.Host{Name: name, NS: ns}
	wire := l.Wire.NS.Netlink()
	bridge, err := wire.LinkByName("wire0")
	if err != nil {
		t.Fatal(err)
	}
	port := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(ns.FD()),
	}
	if err := wire.LinkAdd(port); err != nil {
		t.Fatal(err)
	}
	if err := wire.LinkSetUp(port); err != nil {
		t.Fatal(err)
	}
	sh(t, h, fmt.Sprintf("ip addr add 198.18.0.%d/16 dev eth0; ip addr add fd18::%x/64 dev eth0 nodad; ip "+
		"link set eth0 up", number, number))
	return h
}

// sh runs a script in a host.
func sh(t *testing.T, h *lab.Host, script string) string {
	t.Helper()
	out, err := h.Command(t.Context(), "sh", "-ec", script)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// outer is a datagram as it travels on the underlay.
type outer struct {
	src, dst netip.Addr
	tos      uint8
	payload  []byte
}

// forge sends a datagram to port 8285 with any source address, from port 8285.
func forge(t *testing.T, from *lab.Host, o outer) {
	t.Helper()
	sendAs(t, from, o.src, netip.AddrPortFrom(o.dst, 8285), o.tos, o.payload)
}

// inner is a UDP packet as pods send it, with all its checksums.
func inner(t *testing.T, src, dst string, port uint16, ttl uint8, text string) []byte {
	t.Helper()
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	udp := &proto.UDP{SrcPort: 9, DstPort: proto.UDPPort(port)}
	if s.Is6() {
		ip := &proto.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto.IPProtocolUDP, SrcIP: s.AsSlice(),
			DstIP: d.AsSlice()}
		return serialize(t, ip, udp, []byte(text))
	}
	ip := &proto.IPv4{Version: 4, TTL: ttl, Protocol: proto.IPProtocolUDP, SrcIP: s.AsSlice(),
		DstIP: d.AsSlice()}
	return serialize(t, ip, udp, []byte(text))
}

func serialize(t *testing.T, ip gopacket.NetworkLayer, udp *proto.UDP, payload []byte) []byte {
	t.Helper()
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		ip.(gopacket.SerializableLayer), udp, gopacket.Payload(payload))
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
