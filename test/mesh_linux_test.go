package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
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
