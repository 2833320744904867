package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// TestReadOnlyStore has the store's quota used up, and a node's record deleted meanwhile, as an operator may who looks for what can go. Reads go on: the
// other nodes learn that the node has gone. It keeps its subnet and says why it cannot write; once the store takes writes again its record is there
// again, and it is a peer, without anybody's hand. The others' packets are not touched.
func TestReadOnlyStore(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: []byte(ipv4Only)})
	a, b, c := l.Node(1).Pods[0], l.Node(2).Pods[0], l.Node(3).Pods[0]
	reach(t, await.Patience, a, b, 4)
	reach(t, await.Patience, a, c, 4)
	subnet := c.Node.Net.V4.Masked().String()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stream := endless(ctx, t, a, b)
	underWay(t, stream, 500)

	alarm := func(action string) {
		t.Helper()
		if err := etcd(t, l.Store, "/v3/maintenance/alarm", map[string]any{"action": action, "alarm": "NOSPACE"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	alarm("ACTIVATE")
	if err := etcd(t, l.Store, "/v3/kv/put", map[string]any{"key": []byte("/x"), "value": []byte("y")}, nil); err == nil {
		t.Fatal("the store still takes writes")
	}
	del(t, l.Store, recordKey(c.Node))
	for _, n := range []*lab.Node{a.Node, b.Node} {
		knows(t, n, await.Patience, subnet, false)
	}
	await.OK(t, "the node says why it cannot write", func() error {
		if log := string(c.Node.Daemon.LogTail(100)); !strings.Contains(log, "space exceeded") {
			return errors.New(log)
		}
		return nil
	})
	if s := current(t, c.Node); s.Lease == nil || s.Lease.Subnet.Masked().String() != subnet || s.Underlay.Link == "" || s.Peers != 2 {
		t.Errorf("without its record the node has %+v, %d peers", s.Lease, s.Peers)
	}
	alarm("DEACTIVATE")
	status(t, c.Node, await.Timers, func(s statusJSON) error { // its tries have grown seldom
		if !s.Ready || s.Lease == nil || !s.Lease.Held || s.Lease.Subnet.Masked().String() != subnet {
			return fmt.Errorf("%v %v, %+v", s.Ready, s.NotReady, s.Lease)
		}
		return nil
	})
	for _, n := range []*lab.Node{a.Node, b.Node} {
		knows(t, n, await.Timers, subnet, true)
	}
	reach(t, await.Patience, a, c, 4)
	stop()
	if r := stream.Wait(); r.Lost > 0 || r.Duplicates > 0 {
		t.Errorf("%s, want none lost; outages %v", r, r.Outages)
	}
}
