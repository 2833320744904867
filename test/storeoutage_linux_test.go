package test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/traffic"
)

// TestStoreOutage has a cluster go on without its store, or with one that takes no writes, in one lab one
// after the other. No packet is lost, every node reports the outage, and afterwards each has its subnet and
// learns what is new. Package etcd shows that a store that is paused, cut off, slow, or refuses the node's
// role is noticed as well.
func TestStoreOutage(t *testing.T) {
	long(t)
	l := up(t, lab.Spec{Nodes: 3})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	reach(t, await.Patience, a, l.Node(3).Pods[0], 4)
	var packets *traffic.Flow
	lossless := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			packets = flowOf(t, a, b)
			f(t)
			packets.Lossless()
		})
	}
	lossless("killed", func(t *testing.T) {
		if err := l.Store.Daemon.Kill(); err != nil {
			t.Fatal(err)
		}
		away(t, l)
		lasts(t, 3*time.Second)
		for _, n := range l.Nodes() {
			if err := n.Ready(t.Context()); err != nil {
				t.Errorf("%s: %v", n.Name, err)
			}
		}
		if err := l.Store.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		learns(t, l)
	})
	lossless("read-only", func(t *testing.T) { readOnly(t, l) })
}

// lasts waits for so long, or for a minute with WEFT_LONG.
func lasts(t *testing.T, short time.Duration) {
	t.Helper()
	if os.Getenv("WEFT_LONG") != "" {
		short = time.Minute
	}
	select {
	case <-time.After(short):
	case <-t.Context().Done():
	}
}

// away waits until every node reports that its store does not answer.
func away(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, n := range l.Nodes() {
		status(t, n, await.Timers, func(s statusJSON) error {
			if s.Store.Connected || s.Store.Error == "" {
				return fmt.Errorf("store: %+v", s.Store)
			}
			return nil
		})
	}
}

// readOnly has the store's quota used up and a node's record deleted meanwhile. The others learn that. The
// node keeps its subnet, and writes its record by itself once it can.
func readOnly(t *testing.T, l *lab.Lab) {
	third := l.Node(3)
	alarm := func(action string) {
		t.Helper()
		in := map[string]any{"action": action, "alarm": "NOSPACE"}
		if err := etcd(t, l.Store, "/v3/maintenance/alarm", in, nil); err != nil {
			t.Fatal(err)
		}
	}
	alarm("ACTIVATE")
	if err := etcd(t, l.Store, "/v3/kv/put", map[string]any{"key": []byte("/x"), "value": []byte("y")}, nil); err == nil {
		t.Fatal("the store still takes writes")
	}
	del(t, l.Store, recordKey(third))
	keepsRefused(t, l, third, "space exceeded")
	alarm("DEACTIVATE")
	holdsAgain(t, l, third)
}

// keepsRefused waits until the others have lost a node, and it says with etcd's own reason that it cannot
// write its record. It keeps its subnet and its peers.
func keepsRefused(t *testing.T, l *lab.Lab, n *lab.Node, reason string) {
	t.Helper()
	subnet := n.Net.V4.Masked()
	for _, other := range l.Nodes()[:2] {
		knows(t, other, await.Timers, subnet.String(), false)
	}
	s := status(t, n, await.Timers, func(s statusJSON) error {
		if s.Lease == nil || s.Lease.Held || !strings.Contains(s.Lease.Detail, reason) || !s.Store.Connected {
			return fmt.Errorf("lease %+v, want %q; the store answers: %v", s.Lease, reason, s.Store.Connected)
		}
		return nil
	})
	if s.Lease.Subnet.Masked() != subnet || s.Underlay.Link == "" || s.Peers < 2 {
		t.Errorf("without its record it has %+v, %d peers", s.Lease, s.Peers)
	}
}

// holdsAgain waits until a node has its lease and is ready by itself, and the others reach it.
func holdsAgain(t *testing.T, l *lab.Lab, n *lab.Node) {
	t.Helper()
	subnet := n.Net.V4.Masked()
	status(t, n, await.Timers, func(s statusJSON) error {
		if !s.Ready || s.Lease == nil || !s.Lease.Held || s.Lease.Subnet.Masked() != subnet || s.Alarm != "" {
			return fmt.Errorf("ready %v %q, lease %+v, alarm %q", s.Ready, s.NotReady, s.Lease, s.Alarm)
		}
		return nil
	})
	for _, other := range l.Nodes()[:2] {
		knows(t, other, await.Timers, subnet.String(), true)
	}
	reach(t, await.Patience, l.Node(1).Pods[0], n.Pods[0], 4)
}

// connections is how often a host has begun a TCP connection.
func connections(t *testing.T, h *lab.Host) int {
	t.Helper()
	return counterOf(t, h, "Tcp", "ActiveOpens")
}

// mostConnections is how often a node may connect to the store, once that is back, until it knows what was
// written there. A daemon has two clients, and the one that is connecting while the store returns may have to
// do it again.
const mostConnections = 4

// learns writes a record as soon as the store is back.
func learns(t *testing.T, l *lab.Lab) {
	before := map[*lab.Node]int{}
	for _, n := range l.Nodes() {
		before[n] = connections(t, n.Host)
	}
	put(t, l.Store, prefix+"/subnets/10.42.250.0-24", `{"PublicIP":"198.18.0.250","PublicIPv6":null}`,
		24*time.Hour)
	for _, n := range l.Nodes() {
		took := knows(t, n, await.Patience, "10.42.250.0/24", true)
		tried := connections(t, n.Host) - before[n]
		t.Logf("%s knows a record written after the store's return in %s, with %d connections", n.Name,
			took.Round(time.Millisecond), tried)
		if tried > mostConnections {
			t.Errorf("%s connected %d times until it knew a record written after the store's return, want at most %d",
				n.Name, tried, mostConnections)
		}
		if err := n.WaitReady(t.Context()); err != nil {
			t.Error(lab.Explain(err))
		}
	}
}
