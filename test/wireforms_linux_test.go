package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"

	"weft/test/await"
	"weft/test/lab"
)

// offloaded is how many packets a node has moved by an offload.
func offloaded(t *testing.T, n *lab.Node, offload string) int {
	t.Helper()
	metrics, err := n.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^weft_offload_packets_total\{offload="` + offload + `"\} (\S+)$`).FindStringSubmatch(metrics)
	if m == nil {
		t.Fatalf("/metrics lacks offload %s", offload)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}

// burst sends many small datagrams in a row: what is packed where the peer takes it.
func burst(t *testing.T, from *lab.Pod, to netip.Addr) {
	t.Helper()
	c := listenUDP(t, from, 0) // a port of its own: a child of another scenario may hold the last one's until it executes
	defer c.Close()
	for i := range 300 {
		if _, err := c.WriteToUDPAddrPort(make([]byte, 20+i%5), netip.AddrPortFrom(to, secretPort)); err != nil {
			t.Fatal(err)
		}
	}
}

// plain looks at each frame that the sniffer has of those to dst, and returns how many there were of that inner protocol, which
// others may be beside, such as the end of an earlier connection: all
// are as flannel itself sends them, with one whole packet each. It waits until there are so many, and takes what
// comes in a row after those.
func (s *sniffer) plain(dst netip.Addr, inner proto.IPProtocol, least int) (frames, longest int) {
	s.t.Helper()
	b := make([]byte, 64<<10)
	for began := time.Now(); ; {
		if err := s.f.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			s.t.Fatal(err)
		}
		n, err := s.f.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if frames < least && time.Since(began) < await.Patience {
				continue
			}
			return frames, longest
		}
		if err != nil {
			s.t.Fatal(err)
		}
		p := gopacket.NewPacket(append([]byte{}, b[:n]...), proto.LayerTypeEthernet, gopacket.Default)
		ip, ok := p.Layer(proto.LayerTypeIPv4).(*proto.IPv4)
		if !ok || addr(ip.DstIP) != dst || ip.Protocol != proto.IPProtocolUDP {
			continue
		}
		if err := plainFrame(p, n); err != nil {
			s.t.Errorf("frame %d, of %d bytes: %v", frames, n, err)
		}
		if udp, ok := p.Layer(proto.LayerTypeUDP).(*proto.UDP); ok && len(udp.Payload) > 9 && proto.IPProtocol(udp.Payload[9]) == inner {
			frames, longest = frames+1, max(longest, n)
		}
	}
}

// plainFrame is what is wrong with a frame of size bytes for a node that runs flannel.
func plainFrame(p gopacket.Packet, size int) error {
	ip := p.Layer(proto.LayerTypeIPv4).(*proto.IPv4)
	udp, ok := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
	switch {
	case !ok || udp.SrcPort != 8285 || udp.DstPort != 8285:
		return fmt.Errorf("not the tunnel's: %v", p)
	case size > 1514 || int(ip.Length) != size-14 || int(udp.Length) != size-34:
		return fmt.Errorf("IP says %d bytes, UDP %d", ip.Length, udp.Length)
	case ip.TOS&3 != 0:
		return fmt.Errorf("ECN %d", ip.TOS&3)
	}
	in := gopacket.NewPacket(udp.Payload, proto.LayerTypeIPv4, gopacket.Default)
	inner, ok := in.Layer(proto.LayerTypeIPv4).(*proto.IPv4)
	switch {
	case !ok:
		return fmt.Errorf("no IPv4 inside: % x", udp.Payload[:min(len(udp.Payload), 40)])
	case int(inner.Length) != len(udp.Payload) || len(udp.Payload) > flannelMTU:
		return fmt.Errorf("the packet inside says %d bytes, the datagram has %d", inner.Length, len(udp.Payload))
	}
	return errors.Join(checksums(p), checksums(in))
}

// on runs weftd on the path, by way of the store's configuration, which a node reads when it starts.
func on(t *testing.T, l *lab.Lab, n *lab.Node, path string) {
	t.Helper()
	put(t, l.Store, configKey, fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Probe":false,"Path":%q}}`, path), 0)
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	onPath(t, n, path)
	put(t, l.Store, configKey, unprobed, 0)
}

// unprobed is a network without probes, which may be packed too.
const unprobed = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Probe":false}}`

// Superpackets, partial checksums and packed datagrams are right at every receiver, whatever is left to
// the wire and whatever the wire can do; and a node that runs flannel gets none of them.
func TestWireForms(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 4, NetworkConfig: json.RawMessage(unprobed)})
	a := l.Node(1).Pods[0]
	withoutNetRaw(t, l.Node(3))
	onPath(t, l.Node(3), "socket")
	on(t, l, l.Node(4), "portable")
	onPath(t, l.Node(1), "raw")
	onPath(t, l.Node(2), "raw")
	f := startFlanneld(t, l)
	for _, c := range []struct {
		name, off, outlet string
		sniffable         bool // the wire has packets as a card would send them
	}{
		{"all offloads", "", "tunnel-gso", false},
		{"no tunnel GSO", "tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off", "udp-gso", false},
		{"no TSO, USO or GSO", "tso off tx-udp-segmentation off gso off", "udp-gso", false},
		{"no offload", "tso off tx-udp-segmentation off gso off tx off", "udp-gso", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.off != "" {
				for _, n := range l.Nodes() {
					sh(t, n.Host, "ethtool -K eth0 "+c.off)
				}
			}
			left, packed := offloaded(t, a.Node, c.outlet), offloaded(t, a.Node, "pack")
			for _, n := range l.Nodes()[1:] {
				streams(t, a.Endpoint(4), n.Pods[0].Endpoint(4))
				datagrams(t, a, n.Pods[0], 4, 3000)
				datagrams(t, n.Pods[0], a, 4, 3000)
			}
			await.OK(t, "superpackets and packed datagrams for weft's nodes", func() error {
				for _, n := range l.Nodes()[1:] {
					burst(t, a, n.Pods[0].V4)
				}
				if by, p := offloaded(t, a.Node, c.outlet), offloaded(t, a.Node, "pack"); by == left || p == packed {
					return fmt.Errorf("%d superpackets by %s, %d packed: the test shows little", by-left, c.outlet, p-packed)
				}
				return nil
			})
			// A packet for another node that the machine had no time for until now is counted too. A second time none is under way.
			plain := false
			for range 2 {
				still(t, a.Node)
				whole, packed := offloaded(t, a.Node, "tunnel-gso"), offloaded(t, a.Node, "pack")
				burst(t, a, f.pod)
				streams(t, a.Endpoint(4), f.endpoint())
				if plain = offloaded(t, a.Node, "tunnel-gso") == whole && offloaded(t, a.Node, "pack") == packed; plain {
					break
				}
				t.Log("superpackets or packed datagrams while flannel was sent to")
			}
			wire := sniff(t, l.Wire, f.host.Name)
			burst(t, a, f.pod)
			if c.sniffable {
				if n, longest := wire.plain(netip.MustParseAddr("198.18.0.77"), proto.IPProtocolUDP, 300); n < 300 || longest > 200 {
					t.Errorf("%d frames of the burst, of %d bytes at most", n, longest)
				}
			}
			streams(t, a.Endpoint(4), f.endpoint())
			if c.sniffable {
				n, longest := wire.plain(netip.MustParseAddr("198.18.0.77"), proto.IPProtocolTCP, 2500)
				t.Logf("%d frames, of %d bytes at most", n, longest)
				if n < 2500 || longest != 1514 {
					t.Errorf("%d frames, of %d bytes at most", n, longest)
				}
			}
			if !plain {
				t.Error("superpackets or packed datagrams for flannel")
			}
			if received, longest, err := f.verdict(); err != nil || longest != flannelMTU {
				t.Errorf("the flannel node received %d packets, of %d bytes at most: %v", received, longest, err)
			}
		})
	}
	for _, n := range l.Nodes() {
		if s := booked(t, n); s.Counters.Ingress.dropped("malformed") > 0 {
			t.Errorf("%s's books: %+v", n.Name, s.Counters)
		}
	}
}
