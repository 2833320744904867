package test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// joinedBytes is what a stream of these tests carries, in bytes, and readsMost how many reads of the underlay a receiver may
// need for a mebibyte of it, which is some 760 packets: eight packets a read. It is 42 on an idle machine.
const (
	joinedBytes = 8 << 20
	readsMost   = 95
)

// arrived is what a node has read of its underlay: packets, and those that came in runs with the number of runs.
func arrived(t *testing.T, n *lab.Node) (packets, inRuns, runs uint64) {
	t.Helper()
	c := status(t, n, 5*time.Second, func(s statusJSON) error {
		if !s.Counters.Ingress.balanced() {
			return fmt.Errorf("what was received is not what was delivered and dropped: %+v", s.Counters.Ingress)
		}
		return nil
	}).Counters
	for _, o := range c.Offloads {
		if o.Name == "udp-gro" {
			inRuns, runs = o.Packets, o.Calls
		}
	}
	return c.Ingress.Received, inRuns, runs
}

// readsFor sends TCP from one pod to another, verified, and returns how many packets arrived, and in how many reads.
func readsFor(t *testing.T, from, to *lab.Pod, size int64) (packets, reads uint64) {
	t.Helper()
	p0, in0, r0 := arrived(t, to.Node)
	r, err := probe.Stream(await.Context(t, time.Minute), probe.StreamPlan{From: from.Endpoint(4), To: to.Endpoint(4), Bytes: size, Verify: true})
	if err != nil {
		t.Fatalf("TCP from %s to %s: %d bytes: %v", from.Name, to.Name, r.Received, err)
	}
	p1, in1, r1 := arrived(t, to.Node)
	packets = p1 - p0
	return packets, packets - (in1 - in0) + r1 - r0
}

// What arrives on a wire like a card's is read tens of packets at a time, on both paths that can, without a
// feature of the device: the kernel's GRO joins for the socket that asks for it.
func TestReadsOnEachWire(t *testing.T) {
	busy(t)
	for _, wire := range []lab.WireKind{lab.WireUSO, lab.WirePlain} {
		for _, path := range []string{"raw", "socket"} {
			t.Run(fmt.Sprintf("%v/%s", wire, path), func(t *testing.T) {
				config := fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":%q,"DisableOffloads":["tunnel-gso"],"RxUDPGROForwarding":"off"}}`, path)
				l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config), Wire: wire})
				a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
				onPath(t, a.Node, path)
				onPath(t, b.Node, path)
				reach(t, 10*time.Second, a, b, 4)
				packets, reads := readsFor(t, a, b, joinedBytes)
				t.Logf("%d packets in %d reads", packets, reads)
				if most := uint64(readsMost * joinedBytes >> 20); reads > most {
					t.Errorf("%d packets of %d MiB took %d reads, more than %d", packets, joinedBytes>>20, reads, most)
				}
			})
		}
	}
}
