package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// Twenty daemons that start in the same moment, for a network with exactly twenty subnets: each gets
// one, no two the same, and all talk.
func TestTwentyDaemonsStartTogether(t *testing.T) {
	large(t)
	const crowd = 20
	start := time.Now()
	l := up(t, lab.Spec{Nodes: crowd, NetworkConfig: json.RawMessage(
		`{"Network":"10.42.0.0/16","SubnetMin":"10.42.1.0","SubnetMax":"10.42.20.0","Backend":{"Type":"udp"}}`)})
	t.Logf("all ready after %s", time.Since(start).Round(time.Millisecond))
	owners := map[netip.Prefix]string{}
	for _, n := range l.Nodes() {
		subnet := n.Net.V4.Masked()
		if other := owners[subnet]; other != "" {
			t.Errorf("%s and %s both have %s", n.Name, other, subnet)
		}
		owners[subnet] = n.Name
	}
	if records := list(t, l.Store, prefix+"/subnets/"); len(records) != crowd || len(owners) != crowd {
		t.Errorf("%d records and %d subnets, want %d", len(records), len(owners), crowd)
	}
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if s.Peers != crowd-1 || s.Rejected != 0 {
				return fmt.Errorf("%d peers, %d rejected", s.Peers, s.Rejected)
			}
			return nil
		})
	}
	r, err := l.Measure(await.Context(t, time.Minute), lab.MeasurePlan{Stream: -1, Echo: time.Second, Wait: await.Patience})
	if faults := r.Faults(); err != nil || len(faults) > 0 || len(r.Pairs) != crowd*(crowd-1) {
		t.Errorf("%d pairs, %v, %q", len(r.Pairs), err, faults)
	}
}

// Every pod of three nodes reaches every other in each family that the network has, with packets of
// every size up to the MTU.
func TestMesh(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, config string
		families     []int
		outer        gopacket.LayerType
		mtu          int
	}{
		{"both families over IPv4", dualStack, []int{4, 6}, proto.LayerTypeIPv4, 1472},
		{"IPv6 over IPv6", ipv6Only, []int{6}, proto.LayerTypeIPv6, 1452},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: 3, PodsPerNode: 2, NetworkConfig: json.RawMessage(c.config)})
			r, err := l.Measure(await.Context(t, time.Minute), lab.MeasurePlan{Stream: -1, Echo: 500 * time.Millisecond, Wait: await.Patience})
			if faults := r.Faults(); err != nil || len(faults) > 0 || len(r.Pairs) != 30*len(c.families) {
				t.Errorf("%d pairs, %v, %q", len(r.Pairs), err, faults)
			}
			for _, p := range r.Pairs {
				if p.Received != p.Sent {
					t.Errorf("IPv%d: %s to %s: %d of %d pings answered", p.Family, p.From, p.To, p.Received, p.Sent)
				}
			}
			if mtu := l.Node(1).Net.MTU; mtu != c.mtu {
				t.Errorf("mtu %d, want %d", mtu, c.mtu)
			}
			answering(t, l, c.families, c.mtu)
			for _, family := range c.families {
				fullSize(t, l.Node(1).Pods[0], l.Node(2).Pods[1], family, c.mtu)
				carriedBy(t, l, l.Node(1).Pods[1], l.Node(3).Pods[0], family, c.outer)
				r, err := probe.Stream(await.Context(t, 30*time.Second), probe.StreamPlan{
					From: l.Node(2).Pods[0].Endpoint(family), To: l.Node(3).Pods[0].Endpoint(family), Bytes: 4 << 20, Verify: true})
				if err != nil {
					t.Errorf("TCP over IPv%d: %d bytes, %v", family, r.Received, err)
				}
			}
			for _, n := range l.Nodes() {
				booked(t, n)
			}
		})
	}
}

// fullSize pings without fragmentation: the MTU's size passes, one byte more does not. A ping ends with the last answer, which may be an error.
func fullSize(t *testing.T, from, to *lab.Pod, family, mtu int) {
	t.Helper()
	const icmp = 8
	payload := mtu - icmp - map[int]int{4: 20, 6: 40}[family]
	ping := func(size int) (string, error) {
		out, err := from.Command(t.Context(), "ping", fmt.Sprintf("-%d", family), "-M", "do", "-c", "2", "-i", "0.2", "-W", "10",
			"-s", fmt.Sprint(size), to.Addr(family).String())
		return string(out), err
	}
	if out, err := ping(payload); err != nil {
		t.Errorf("IPv%d, %d bytes: %v\n%s", family, mtu, err, out)
	}
	if out, err := ping(payload + 1); err == nil {
		t.Errorf("IPv%d, %d bytes passed:\n%s", family, mtu+1, out)
	}
}

// carriedBy finds out in which family the underlay carries a packet.
func carriedBy(t *testing.T, l *lab.Lab, from, to *lab.Pod, family int, want gopacket.LayerType) {
	t.Helper()
	wire := sniff(t, l.Wire, from.Node.Name)
	reach(t, await.Patience, from, to, family)
	p := wire.next(await.Patience, func(p gopacket.Packet) bool {
		udp, ok := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
		return ok && udp.DstPort == 8285 && len(udp.Payload) > 0 && int(udp.Payload[0]>>4) == family
	})
	if got := p.NetworkLayer().LayerType(); got != want {
		t.Errorf("inner IPv%d travels in %s, want %s", family, got, want)
	}
}
