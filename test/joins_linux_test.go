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
	c := booked(t, n).Counters
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
				reach(t, await.Patience, a, b, 4)
				packets, reads := readsFor(t, a, b, joinedBytes)
				t.Logf("%d packets in %d reads", packets, reads)
				if most := uint64(readsMost * joinedBytes >> 20); reads > most {
					t.Errorf("%d packets of %d MiB took %d reads, more than %d", packets, joinedBytes>>20, reads, most)
				}
			})
		}
	}
}

// On a wire whose receiving device gives no frame to GRO unless it has rx-udp-gro-forwarding, weftd turns that on by
// itself, says so, and leaves it off once somebody turned it off.
func TestForwardingIsTurnedOn(t *testing.T) {
	busy(t)
	config := `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","DisableOffloads":["tunnel-gso"]}}`
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config), Wire: lab.WirePlain, Direct: true, Store: lab.Embedded})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	for _, n := range l.Nodes() { // each passes TCP superpackets on, as a veth does: its frames meet no GRO
		if err := n.NS.SetFeatures("eth0", map[string]bool{"tx-tcp-segmentation": true}); err != nil {
			t.Fatal(err)
		}
	}
	reach(t, await.Patience, a, b, 4)
	const enough = 4 * 8192 * 1400 // datagrams for two judgements, also if some come in short batches
	says := func(what string) error {
		if got := current(t, b.Node).Underlay.RxUDPGROForwarding; got != what {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	}
	await.OK(t, "turned on", func() error {
		readsFor(t, a, b, enough)
		return says("on: weft turned it on, and weft cleanup gives it back")
	})
	packets, reads := readsFor(t, a, b, joinedBytes)
	t.Logf("%d packets in %d reads", packets, reads)
	if most := uint64(readsMost * joinedBytes >> 20); reads > most {
		t.Errorf("%d packets took %d reads, more than %d", packets, reads, most)
	}
	if err := b.Node.NS.SetFeatures("eth0", map[string]bool{"rx-udp-gro-forwarding": false}); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "noticed", func() error { return says("off: somebody turned it off, and so it stays") })
	packets, reads = readsFor(t, a, b, enough)
	if has, err := b.Node.NS.Features("eth0"); err != nil || has["rx-udp-gro-forwarding"] || reads < packets/2 {
		t.Errorf("off means off: it is %v (%v), and %d packets took %d reads", has["rx-udp-gro-forwarding"], err, packets, reads)
	}
}
