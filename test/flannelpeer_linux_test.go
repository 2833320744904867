package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
	"weft/test/traffic"
)

// A node that runs flannel, with a record as flannel writes it, is a peer like any other, and gets
// only what flannel understands.
func TestFlannelNodeAsPeer(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(ipv4Only), Nodes: 2})
	f := startFlanneld(t, l)
	a := l.Node(1).Pods[0]
	for _, p := range l.Pods() {
		if err := lab.Reach(await.Context(t, await.Patience), p.Endpoint(4), f.pod); err != nil {
			t.Fatal(err)
		}
		if err := lab.Reach(await.Context(t, await.Patience), f.endpoint(), p.V4); err != nil {
			t.Fatal(err)
		}
	}
	for _, direction := range []struct{ from, to probe.Endpoint }{{a.Endpoint(4), f.endpoint()}, {f.endpoint(), a.Endpoint(4)}} {
		for _, size := range []int{16, 1444, 4000} { // the last in fragments
			f := traffic.StartSized(t, direction.from, direction.to, 1000, size)
			f.Passes(500)
			if r := f.Stop(); r.Lost > 0 || r.Duplicated > 0 {
				t.Errorf("UDP of %d bytes: %s", size, r)
			}
		}
		r, err := probe.Stream(await.Context(t, 30*time.Second), probe.StreamPlan{From: direction.from, To: direction.to, Bytes: 4 << 20, Verify: true})
		if err != nil || r.Received != 4<<20 {
			t.Errorf("TCP from %s: %d bytes, %v", direction.from.Name, r.Received, err)
		}
	}
	received, longest, err := f.verdict()
	t.Logf("the flannel node received %d packets, of %d bytes at most", received, longest)
	if err != nil || longest != flannelMTU {
		t.Errorf("longest %d, want %d; %v", longest, flannelMTU, err)
	}
	for _, p := range weftJSON[peersJSON](t, l.Node(1), "peers").Peers {
		if flannels := p.Name == "10.42.207.0/24"; flannels == p.Weft {
			t.Errorf("weft peers: %+v", p)
		}
	}
	keepsECNInside(t, l, f, a)
	await.OK(t, "flannel's kernel answers the probes", func() error {
		answer, err := ask[probesSeen](t.Context(), l.Node(1), "peers")
		for _, p := range answer.Peers {
			if p.Name != "10.42.207.0/24" {
				continue
			}
			if len(p.Probes) != 1 || p.Probes[0].By != "icmp" || p.Probes[0].Answers != "yes" || p.Probes[0].RTT <= 0 || p.Probes[0].PathMTU != flannelMTU {
				return fmt.Errorf("%+v", p.Probes)
			}
			return err
		}
		return errors.Join(err, errors.New("it is no peer"))
	})
	await.OK(t, "the matrix has all three", func() error {
		m, exit, err := matrixOf(t, l.Node(2))
		if err == nil && (exit != 0 || !m.Reached || m.Pairs.Well != 3 || len(m.Nodes) != 3 || m.Nodes[0].Tells != "no" || !strings.Contains(m.Nodes[0].Reason, "flannel")) {
			err = fmt.Errorf("exit status %d, %+v", exit, m)
		}
		return err
	})
}

// keepsECNInside checks that the outer header is Not-ECT towards a node that would not copy a mark into the inner one.
func keepsECNInside(t *testing.T, l *lab.Lab, f *flanneld, a *lab.Pod) {
	wire := sniff(t, l.Wire, a.Node.Name)
	c := listenUDP(t, a, secretPort)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const ect0 = 2 // RFC 3168 section 5
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, ect0) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	for to, want := range map[netip.Addr]uint8{f.pod: 0, l.Node(2).Pods[0].V4: ect0} {
		if _, err := c.WriteToUDPAddrPort([]byte("marked"), netip.AddrPortFrom(to, secretPort)); err != nil {
			t.Fatal(err)
		}
		wire.next(await.Patience, func(p gopacket.Packet) bool {
			ip, ok := p.Layer(proto.LayerTypeIPv4).(*proto.IPv4)
			udp, ok2 := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
			if !ok || !ok2 || udp.DstPort != 8285 || len(udp.Payload) < 20 || addr(udp.Payload[16:20]) != to {
				return false
			}
			if ip.TOS != want || udp.Payload[1] != ect0 {
				t.Errorf("to %s: outer TOS %d, inner %d, want %d and %d", to, ip.TOS, udp.Payload[1], want, ect0)
			}
			return true
		})
	}
}

// In a network of both families a flannel node still gets no IPv6: its udp backend would take it for
// IPv4. Who sends is told so.
func TestFlannelNodeGetsNoIPv6(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(dualStack)})
	f := startFlanneld(t, l)
	a := l.Node(1).Pods[0]
	del(t, l.Store, prefix+"/subnets/10.42.207.0-24")
	put(t, l.Store, prefix+"/subnets/10.42.207.0-24&fd42:0:0:207::-64", `{"PublicIP":"198.18.0.77","PublicIPv6":"fd18::77"}`, 24*time.Hour)
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, "fd42:0:0:207::/64", true)
	}
	reach(t, await.Patience, a, l.Node(2).Pods[0], 6)
	if err := lab.Reach(await.Context(t, await.Patience), a.Endpoint(4), f.pod); err != nil {
		t.Fatal(err)
	}
	before := current(t, a.Node).Counters.Egress.dropped("unsupported")
	out := sh(t, a.Host, "ping -6 -c 2 -i 0.2 -W 10 fd42:0:0:207::2 2>&1 || true")
	after := current(t, a.Node).Counters.Egress.dropped("unsupported")
	if after == before || !strings.Contains(out, "unreachable") && !strings.Contains(out, "No route") {
		t.Errorf("%d packets dropped as unsupported; ping says\n%s", after-before, out)
	}
	if _, _, err := f.verdict(); err != nil {
		t.Error(err)
	}
}
