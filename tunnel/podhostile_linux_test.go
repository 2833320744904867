package tunnel_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// TestAPodsFloodLeavesOthersTheirPackets: whatever one pod sends as fast as its port is read, to a pod that
// takes nothing any more, to nobody, as somebody else, with its last hop or too large, each packet of another
// pod arrives, and each ICMP error that is due to it.
func TestAPodsFloodLeavesOthersTheirPackets(t *testing.T) {
	for _, workers := range []int{1, 2} {
		n := startPods(t, tunnel.Config{Workers: workers})
		hostile := attachPod(t, n.Engine, 0, "10.1.1.66")
		attachPod(t, n.Engine, 0, "10.1.1.67") // nobody empties it
		flood := [][]byte{
			udp4(t, "10.1.1.66", "10.1.1.67", 1400, nil), udp4(t, "10.1.1.66", "127.0.0.1", 9, nil),
			udp4(t, "10.1.1.5", "10.1.2.7", 9, nil),
			udp4(t, "10.1.1.66", "10.1.2.7", 9, func(ip *layers.IPv4) { ip.TTL = 1 }),
			udp4(t, "10.1.1.66", "10.1.4.7", 1400, nil), {0x45},
		}
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				hostile.Inject(tunneltest.Datagram{Data: flood[i%len(flood)]})
				hostile.Discard()
			}
		})
		valid, last := udp4(t, "10.1.1.5", "10.1.1.6", 9, nil),
			udp4(t, "10.1.1.5", "10.1.2.7", 9, func(ip *layers.IPv4) { ip.TTL = 1 })
		const rounds = 20
		for i := range rounds {
			n.ports["a"].Inject(tunneltest.Datagram{Data: valid})
			if d, ok := n.ports["b"].Next(within); !ok || !bytes.Equal(d.Data[20:], valid[20:]) {
				t.Fatalf("%d workers: packet %d of the other pod came as %x; %+v", workers, i, d.Data, n.Stats())
			}
			n.ports["a"].Inject(tunneltest.Datagram{Data: last})
			if d, ok := n.ports["a"].Next(within); !ok ||
				describeICMP(t, d.Data, last) != "TimeExceeded(TTLExceeded)" {
				t.Fatalf("%d workers: the other pod is told %x", workers, d.Data)
			}
		}
		stop()
		wg.Wait()
		await.Within(t, within, "the books to balance", func() error {
			s, p := n.Stats(), n.Pods()
			if p[0].TxPackets != 2*rounds || p[0].Drops != [port.NumDropReasons]uint64{port.DropTTL: rounds} {
				return fmt.Errorf("the other pod has %+v", p[0])
			}
			if d := p[2].Drops; s.ICMPSuppressed == 0 || d[port.DropBusy] == 0 || d[port.DropForeignSource] == 0 {
				return fmt.Errorf("%+v and, of the hostile pod, %v", s, d)
			}
			return nil
		})
		balanced(t, n.Stats())
	}
}

// TestPodsOfDifferentMTU: what does not fit a pod's interface is refused or cut as by the router in front of
// it, and whoever sent it is told, also a pod of another node.
func TestPodsOfDifferentMTU(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 2})
	a, small := attachPod(t, n.Engine, 9000, "10.1.1.5", "fd00:1:1::5"),
		attachPod(t, n.Engine, 1280, "10.1.1.6", "fd00:1:1::6")
	for name, tt := range map[string]struct {
		from   *tunneltest.Port
		packet []byte
		says   string // what the sender is told
		pieces int    // how many reach the pod
	}{
		"a pod's": {a, udp4(t, "10.1.1.5", "10.1.1.6", 1300, nil),
			"DestinationUnreachable(FragmentationNeeded) 1280", 0},
		"a pod's by IPv6": {a, udp6(t, "fd00:1:1::5", "fd00:1:1::6", 1300), "DestinationUnreachable", 0},
		"a pod's that permits": {a, udp4(t, "10.1.1.5", "10.1.1.6", 3000, func(ip *layers.IPv4) { ip.Flags = 0 }),
			"", 3},
		"a pod's that fits": {a, udp4(t, "10.1.1.5", "10.1.1.6", 1252, nil), "", 1},
		"a peer's": {n.wire, udp4(t, "10.1.2.7", "10.1.1.6", 1300, nil),
			"DestinationUnreachable(FragmentationNeeded) 1280", 0},
		"a peer's by IPv6": {n.wire, udp6(t, "fd00:1:2::7", "fd00:1:1::6", 1300), "DestinationUnreachable", 0},
		"a peer's that permits": {n.wire, udp4(t, "10.1.2.7", "10.1.1.6", 2000, func(ip *layers.IPv4) {
			ip.Flags = 0
		}), "", 2},
		"the host's": {n.host, udp4(t, "10.1.1.0", "10.1.1.6", 1300, nil),
			"DestinationUnreachable(FragmentationNeeded) 1280", 0},
	} {
		tt.from.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: tt.packet})
		for i := range tt.pieces {
			if d, ok := small.Next(within); !ok || len(d.Data) > 1280 {
				t.Errorf("%s: piece %d of %d has %d bytes", name, i, tt.pieces, len(d.Data))
			}
		}
		if tt.says == "" {
			continue
		}
		d, ok := tt.from.Next(within)
		if !ok {
			t.Errorf("%s: the sender is told nothing", name)
			continue
		}
		in, err := encap.ParseInner(d.Data)
		if err != nil || in.Dst != netip.MustParseAddr(srcOf(tt.packet)) || tt.from == n.wire &&
			d.Outer != outer("192.0.2.2") {
			t.Errorf("%s: %v is told, by %v, %v", name, in.Dst, d.Outer, err)
		}
		if in.Version == 4 {
			about := bytes.Clone(tt.packet)
			if tt.from == a {
				encap.DecrementTTL(about) // it has been forwarded so far (RFC 1812 section 4.3.2.3)
			}
			if got := describeICMP(t, d.Data, about); got != tt.says {
				t.Errorf("%s: the sender is told %s", name, got)
			}
		} else if d.Data[40] != 2 {
			t.Errorf("%s: the sender is told ICMPv6 type %d", name, d.Data[40])
		}
	}
	if small.Discard()+a.Discard()+n.wire.Discard()+n.host.Discard() != 0 {
		t.Error("there were more packets than these")
	}
	await.Within(t, within, "the books", func() error {
		if p := n.Pods()[1]; p.RxPackets != 3 || p.RxDrops != [port.NumDropReasons]uint64{port.DropTooBig: 5} {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	balanced(t, n.Stats())
}

func srcOf(b []byte) string {
	in, err := encap.ParseInner(b)
	if err != nil {
		return err.Error()
	}
	return in.Src.String()
}

// TestPodsFragmentsPass: fragments that overlap, repeat or lack a beginning are the receiver's to judge; none
// is put together here, and none takes another way than its own flow's.
func TestPodsFragmentsPass(t *testing.T) {
	n := startPods(t, tunnel.Config{Workers: 1})
	whole := packet(t, "10.1.1.5", "10.1.1.6", layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2},
		gopacket.Payload(make([]byte, 3000)))
	l := fragments(t, whole, 9)
	overlap := bytes.Clone(l[1])
	overlap[7] -= 4 // 32 bytes further to the front
	overlap[10], overlap[11] = 0, 0
	sum := encap.Checksum(overlap[:20])
	overlap[10], overlap[11] = byte(sum>>8), byte(sum)
	for i, f := range [][]byte{l[2], l[1], overlap, l[1], l[0]} {
		n.send(t, fmt.Sprintf("fragment %d", i), "a", f, "b")
	}
	balanced(t, n.Stats())
}
