package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// onPath waits until a node is on a path, and everything in place.
func onPath(t *testing.T, n *lab.Node, path string) statusJSON {
	t.Helper()
	return status(t, n, await.Patience, func(s statusJSON) error {
		if s.Backend.Path != path || !s.Backend.InPlace {
			return fmt.Errorf("path %s, in place %v: %s; %q", s.Backend.Path, s.Backend.InPlace, s.Backend.Error,
				s.Backend.Notes)
		}
		return nil
	})
}

// carries sends TCP both ways, and datagrams one way, and compares every byte.
func carries(t *testing.T, a, b *lab.Pod, family int) {
	t.Helper()
	reach(t, await.Patience, a, b, family)
	streams(t, a.Endpoint(family), b.Endpoint(family))
	datagrams(t, a, b, family, 60000) // the largest in many inner fragments
}

// streams sends TCP both ways.
func streams(t *testing.T, a, b probe.Endpoint) {
	t.Helper()
	stream(t, a, b)
	stream(t, b, a)
}

// stream sends 4 MiB over TCP, and compares what arrives.
func stream(t *testing.T, from, to probe.Endpoint) {
	t.Helper()
	streamOf(t, from, to, 4<<20)
}

// streamOf is stream for so many bytes.
func streamOf(t *testing.T, from, to probe.Endpoint, bytes int64) {
	t.Helper()
	r, err := probe.Stream(await.Context(t, 2*await.Patience),
		probe.StreamPlan{From: from, To: to, Bytes: bytes, Verify: true})
	if err != nil {
		t.Errorf("TCP from %s to %s at %v: %d bytes: %v", from.Name, to.Name, to.Addr, r.Received, err)
	}
}

// datagrams sends one of each size up to most, one after another.
func datagrams(t *testing.T, a, b *lab.Pod, family, most int) {
	t.Helper()
	ear, mouth := listenAt(t, b, family), listenAt(t, a, family)
	defer func() { _, _ = ear.Close(), mouth.Close() }()
	to := netip.AddrPortFrom(b.Addr(family), secretPort)
	got := make([]byte, 64<<10)
	for size := 1; size <= most; size += 1 + size/9 {
		want := bytes.Repeat([]byte{byte(size), byte(size >> 8), 0xa5}, size/3+1)[:size]
		if _, err := mouth.WriteToUDPAddrPort(want, to); err != nil {
			t.Fatal(err)
		}
		if err := ear.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		n, from, err := ear.ReadFromUDPAddrPort(got)
		if err != nil || !bytes.Equal(got[:n], want) || from.Addr() != a.Addr(family) {
			t.Fatalf("IPv%d, of %d bytes: %d from %v, %v", family, size, n, from, err)
		}
	}
}

// listenAt is listenUDP for either family.
func listenAt(t *testing.T, p *lab.Pod, family int) *net.UDPConn {
	t.Helper()
	return listenOn(t, p, netip.AddrPortFrom(p.Addr(family), secretPort))
}

// hardwareAddr is a device's link address.
func hardwareAddr(t *testing.T, h *lab.Host, device string) net.HardwareAddr {
	t.Helper()
	l, err := h.NS.Netlink().LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().HardwareAddr
}

// spy makes a host's firewall count the tunnel's datagrams that pass OUTPUT, and drop those that reach
// INPUT. sent returns what was counted since.
func spy(t *testing.T, h *lab.Host) (sent func() int) {
	t.Helper()
	sh(t, h, `nft 'table inet spy {
		chain out { type filter hook output priority 0; udp dport 8285 counter; }
		chain in { type filter hook input priority 0; udp dport 8285 counter drop; }
	}'`)
	t.Cleanup(func() { // unless the test has removed it, or the lab is gone
		_, _ = h.Command(context.Background(), "nft", "delete", "table", "inet", "spy")
	})
	return func() int {
		t.Helper()
		var list struct{ Nftables []map[string]json.RawMessage }
		if err := json.Unmarshal([]byte(sh(t, h, "nft -j list chain inet spy out")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Nftables {
			var rule struct {
				Expr []struct{ Counter *struct{ Packets int } }
			}
			if err := json.Unmarshal(o["rule"], &rule); err != nil {
				continue // another object
			}
			for _, e := range rule.Expr {
				if e.Counter != nil {
					return e.Counter.Packets
				}
			}
		}
		t.Fatal("the counter is gone")
		return 0
	}
}

// fewDatagrams is what the IP stack may send in a test that began then: a run (which OUTPUT sees as one)
// whenever a next hop becomes known, and for each of two families every ten seconds. Past that, whatever the
// nodes send is some hundreds of runs.
func fewDatagrams(began time.Time) int { return 20 + int(time.Since(began)/(5*time.Second)) }

// byFrames waits until what one pod sends to another leaves its node as a frame to that MAC, past
// OUTPUT; sent counts there. In between the kernel sends itself, to ask for the neighbour.
func byFrames(t *testing.T, from, to *lab.Pod, sent func() int, mac net.HardwareAddr) {
	t.Helper()
	took := await.OK(t, fmt.Sprintf("frames from %s to %s", from.Node.Name, mac), func() error {
		wire := sniff(t, from.Node.Host, "eth0")
		defer wire.f.Close()
		before := sent()
		if err := lab.Reach(await.Context(t, time.Second), from.Endpoint(4), to.V4); err != nil {
			return err
		}
		var got net.HardwareAddr
		_, err := wire.look(time.Second, func(p gopacket.Packet) bool {
			eth, ok := p.Layer(proto.LayerTypeEthernet).(*proto.Ethernet)
			udp, ok2 := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
			if !ok || !ok2 || udp.DstPort != 8285 || len(udp.Payload) < 20 || netip.AddrFrom4([4]byte(udp.Payload[16:20])) != to.V4 {
				return false
			}
			got = eth.DstMAC
			return true
		})
		if err != nil {
			return err
		}
		if n := sent() - before; n > 0 || got.String() != mac.String() {
			return fmt.Errorf("%d by the IP stack, the last to %s", n, got)
		}
		return nil
	})
	t.Logf("frames from %s to %s after %v", from.Node.Name, mac, took.Round(time.Millisecond))
}

// Path raw passes the firewall of the host by: datagrams leave by the packet socket, past OUTPUT, and arrive
// past INPUT, of which a rule that drops them shows nothing.
func TestRawPassesTheFirewall(t *testing.T) {
	parallel(t)
	began := time.Now()
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(dualStack)})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	onPath(t, a.Node, "raw")
	onPath(t, b.Node, "raw")
	sentA, sentB := spy(t, a.Node.Host), spy(t, b.Node.Host)
	byFrames(t, a, b, sentA, hardwareAddr(t, b.Node.Host, "eth0"))
	byFrames(t, b, a, sentB, hardwareAddr(t, a.Node.Host, "eth0"))
	for _, family := range []int{4, 6} {
		carries(t, a, b, family)
	}
	for _, n := range []*lab.Node{a.Node, b.Node} {
		s := booked(t, n)
		if c := s.Counters; c.Egress.Delivered < 5000 || len(s.Backend.Notes) > 0 {
			t.Errorf("%s: notes %q, %+v", n.Name, s.Backend.Notes, c)
		}
	}
	nA, nB := sentA(), sentB()
	t.Logf("%d and %d sent by the IP stack", nA, nB)
	if most := fewDatagrams(began); nA > most || nB > most {
		t.Errorf("the IP stack sent %d and %d: more than it takes to ask for the neighbour", nA, nB)
	}

	// A node that may not open packet sockets takes path socket, says why, and talks to those on raw.
	sh(t, b.Node.Host, "nft delete table inet spy")
	withoutNetRaw(t, b.Node)
	if s := onPath(t, b.Node, "socket"); !strings.Contains(strings.Join(s.Backend.Notes, "\n"), "CAP_NET_RAW") {
		t.Errorf("it does not say why: %q", s.Backend.Notes)
	}
	onPath(t, a.Node, "raw")
	for _, family := range []int{4, 6} {
		carries(t, a, b, family)
	}
}

// withoutNetRaw restarts a node's daemon without CAP_NET_RAW.
func withoutNetRaw(t *testing.T, n *lab.Node) {
	t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatalf("%v: apt-get install util-linux", err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Daemon.SetArgs(append([]string{"--bounding-set=-net_raw", "--inh-caps=-net_raw",
		filepath.Join(binDir, "weftd")}, n.Daemon.Args()...)...)
	n.Daemon.SetPath(setpriv)
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
}

// reassembled is how many datagrams a host has put together.
func reassembled(t *testing.T, h *lab.Host) int {
	t.Helper()
	return counterOf(t, h, "Ip", "ReasmOKs")
}

// counterOf is a counter of a host's IP stack: a name in a group of /proc/net/snmp.
func counterOf(t *testing.T, h *lab.Host, group, name string) int {
	t.Helper()
	lines := strings.Split(sh(t, h, "grep ^"+group+": /proc/net/snmp"), "\n")
	if i := slices.Index(strings.Fields(lines[0]), name); i >= 0 {
		n, err := strconv.Atoi(strings.Fields(lines[1])[i])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("no %s in %q", name, lines)
	return 0
}
