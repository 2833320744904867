package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/test/await"
)

const userWireGuard = `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48",` +
	`"Backend":{"Type":"wireguard","Userspace":"always"}}`

// wireGuardNodes makes hosts on one Ethernet with backends of type wireguard, which know each other and run.
func wireGuardNodes(t *testing.T, count int) []*node {
	t.Helper()
	nodes := hosts(t, count)
	for _, n := range nodes {
		n.openWireGuard(t)
	}
	joinVTEPs(t, nodes)
	return nodes
}

// openWireGuard makes the node's backend and runs it.
func (n *node) openWireGuard(t *testing.T) {
	t.Helper()
	b := openKernelBackend(t, n.k, userWireGuard, func(c *BackendConfig) { c.StateDir = t.TempDir() })
	n.u = b.Node
	n.own.BackendType = n.u.RecordType()
	n.own.BackendData, n.own.BackendV6Data = n.u.Publish()
	b.start()
}

// hears waits until a datagram from one node reaches another.
func hears(t *testing.T, from, to *node, six bool) {
	t.Helper()
	in, out := to.listen(t, to.addr(six)), from.listen(t, from.addr(six))
	defer func() { _ = errors.Join(in.Close(), out.Close()) }()
	await.OK(t, "the first packet", func() error {
		_, _ = out.WriteTo([]byte("x"), in.LocalAddr())
		_ = in.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _, err := in.ReadFrom(make([]byte, 1))
		return err
	})
}

// TestWireGuardFollowsRecords adds, changes and removes peers: a subnet is reached by the key that its record
// has now, and only by it.
func TestWireGuardFollowsRecords(t *testing.T) {
	ns := wireGuardNodes(t, 3)
	a, b, c := ns[0], ns[1], ns[2]
	hears(t, a, b, false)
	hears(t, b, c, true)
	// c's key is another one now, and its peers know.
	before, after, err := c.u.RotateKey(t.Context())
	if err != nil || before == after {
		t.Fatal(before, after, err)
	}
	c.own.BackendData, c.own.BackendV6Data = c.u.Publish()
	if !strings.Contains(string(c.own.BackendData), after.String()) {
		t.Fatalf("published %s", c.own.BackendData)
	}
	joinVTEPs(t, ns)
	hears(t, a, c, false)
	hears(t, c, b, true)
	for _, n := range []*node{a, b} {
		ps, err := n.u.EncryptedPeers()
		if err != nil || len(ps) != 4 || strings.Contains(fmt.Sprint(ps), before.String()) {
			t.Errorf("%v, %v", ps, err)
		}
	}
	// a has not heard of b's second key: nothing passes, and who has a wrong one is told apart by its
	// handshakes.
	if _, _, err := b.u.RotateKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, out := a.listen(t, a.addr(false)), b.listen(t, b.addr(false))
	for range 5 {
		_, _ = out.WriteTo([]byte("with a key that nobody knows"), in.LocalAddr())
	}
	_ = in.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, _, err := in.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes came with a wrong key", n)
	}
	_ = errors.Join(in.Close(), out.Close())
	// b leaves.
	s := lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4,
		IPv6Network: net6}, Own: a.own, Peers: []lease.Record{c.own}}
	if err := a.u.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if ps, err := a.u.EncryptedPeers(); err != nil || len(ps) != 2 {
		t.Errorf("%v, %v", ps, err)
	}
	hears(t, a, c, false) // whose session went on
}
