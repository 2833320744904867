package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// On a wire whose receiving device gives no frame to GRO unless it has rx-udp-gro-forwarding, weftd turns that on by
// itself, says so, and then reads datagrams joined. It leaves the feature off once somebody turned it off.
func TestForwardingIsTurnedOn(t *testing.T) {
	parallel(t)
	config := `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","DisableOffloads":["tunnel-gso"]}}`
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config), Wire: lab.WirePlain, Direct: true, Store: lab.Embedded})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	for _, n := range l.Nodes() { // each passes TCP superpackets on, as a veth does: its frames meet no GRO
		if err := n.NS.SetFeatures("eth0", map[string]bool{"tx-tcp-segmentation": true}); err != nil {
			t.Fatal(err)
		}
	}
	reach(t, await.Patience, a, b, 4)
	const enough = 16 << 20
	send := func() {
		t.Helper()
		plan := probe.StreamPlan{From: a.Endpoint(4), To: b.Endpoint(4), Bytes: enough, Verify: true}
		if r, err := probe.Stream(await.Context(t, time.Minute), plan); err != nil {
			t.Fatalf("TCP: %d bytes: %v", r.Received, err)
		}
	}
	is := func(state string) error {
		if got := current(t, b.Node).Underlay.RxUDPGROForwarding; !strings.HasPrefix(got, state+":") {
			return fmt.Errorf("rx-udp-gro-forwarding: %q, want %s", got, state)
		}
		return nil
	}
	await.OK(t, "turned on", func() error { return is("on") })
	before, _ := current(t, b.Node).Counters.offload("udp-gro")
	send()
	if joined, _ := current(t, b.Node).Counters.offload("udp-gro"); joined-before < enough/(128<<10) {
		t.Errorf("%d reads brought several datagrams", joined-before)
	}
	if err := b.Node.NS.SetFeatures("eth0", map[string]bool{"rx-udp-gro-forwarding": false}); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "noticed", func() error { return is("off") })
	send()
	if has, err := b.Node.NS.Features("eth0"); err != nil || has["rx-udp-gro-forwarding"] {
		t.Errorf("after an operator turned it off it is %v (%v)", has["rx-udp-gro-forwarding"], err)
	}
}
