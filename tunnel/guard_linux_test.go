package tunnel_test

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// counted is a port in memory that counts every call, also those that find nothing.
type counted struct {
	*tunneltest.Port
	reads, writes atomic.Uint64
}

func (c *counted) Queues() []port.Queue { return []port.Queue{c} }

func (c *counted) ReadBatch(r *port.Ring) error {
	c.reads.Add(1)
	return c.Port.ReadBatch(r)
}

func (c *counted) WriteBatch(r *port.Ring, ps []*port.Packet) {
	c.writes.Add(1)
	c.Port.WriteBatch(r, ps)
}

// countedNode is an engine over two counted ports that does not run yet.
func countedNode(t *testing.T, i int) (e *tunnel.Engine, host, wire *counted) {
	t.Helper()
	e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := guardSpec(i)
	swap(t, e, s)
	ports := [2]*counted{}
	for k, local := range []netip.AddrPort{{}, netip.AddrPortFrom(s.Self[0], udpPort)} {
		p, err := tunneltest.New(local, 2048, 2048)
		if err != nil {
			t.Fatal(err)
		}
		ports[k] = &counted{Port: p}
		role := tunnel.RoleHost
		if k == 1 {
			role = tunnel.RoleUnderlay
		}
		if _, err := e.Attach(ports[k], role); err != nil {
			t.Fatal(err)
		}
	}
	return e, ports[0], ports[1]
}

// TestGuardBatches: packets that wait are moved in full batches, with one read, one write
// and at most one wakeup for each, both ways, and whatever the flows.
func TestGuardBatches(t *testing.T) {
	const n = 1000
	const batches = (n + 63) / 64 // of 64 reads
	for _, ingress := range []bool{false, true} {
		e, host, wire := countedNode(t, 0)
		from, to, flow := host, wire, func() tunnel.Flow { return e.Stats().Egress }
		packets := [][]byte{udp4(t, "10.1.1.5", "10.1.2.7", 64, nil), udp4(t, "10.1.1.6", "10.1.2.8", 1400, nil)}
		if ingress {
			from, to, flow = wire, host, func() tunnel.Flow { return e.Stats().Ingress }
			packets = [][]byte{udp4(t, "10.1.2.7", "10.1.1.5", 64, nil), udp4(t, "10.1.2.8", "10.1.1.6", 1400, nil)}
		}
		for i := range n {
			if !from.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: packets[i%len(packets)]}) {
				t.Fatal("the port is full")
			}
		}
		running(t, e)
		await.Within(t, within, "all packets", func() error {
			if flow().Delivered < n {
				return fmt.Errorf("%+v", e.Stats())
			}
			return nil
		})
		s := e.Stats()
		if got := from.reads.Load(); got > batches+1 { // one that finds the port empty
			t.Errorf("ingress=%t: %d calls of ReadBatch for %d batches", ingress, got, batches)
		}
		if got := to.writes.Load(); got > batches {
			t.Errorf("ingress=%t: %d calls of WriteBatch for %d batches", ingress, got, batches)
		}
		if s.Batches > batches || s.Wakeups > batches+1 {
			t.Errorf("ingress=%t: %d batches and %d wakeups, want at most %d", ingress, s.Batches, s.Wakeups, batches)
		}
		if got := to.reads.Load() + from.writes.Load(); got > 0 {
			t.Errorf("ingress=%t: %d calls in the other direction, where nothing was", ingress, got)
		}
	}
}

// TestGuardLonePacket: a packet by itself leaves at once, in a batch of its own: one wakeup
// at most, one write, and a bounded number of looks for the next before the worker sleeps.
func TestGuardLonePacket(t *testing.T) {
	e, host, wire := countedNode(t, 0)
	running(t, e)
	b := udp4(t, "10.1.1.5", "10.1.2.7", 0, nil)
	const n = 20
	for i := range n {
		host.Inject(tunneltest.Datagram{Data: b})
		if _, ok := wire.Next(within); !ok {
			t.Fatalf("packet %d did not leave though nothing came behind it", i)
		}
	}
	if s := e.Stats(); s.Wakeups > 2*n || s.Batches > n || wire.writes.Load() > n || host.reads.Load() > 100*n {
		t.Errorf("%d packets: %d wakeups, %d batches, %d reads, %d writes", n, s.Wakeups, s.Batches,
			host.reads.Load(), wire.writes.Load())
	}
}
