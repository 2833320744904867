package test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// mostLogged is how many bytes a second a weftd may log while it is flooded, and atFirst what a flood may say
// before anything is held back.
const (
	mostLogged = 10 << 10
	atFirst    = 20 << 10
)

// tunnelPort is that of a network of type udp.
const tunnelPort = 8285

// A node is flooded by a stranger on the underlay, by a peer's pod with valid packets, and with forged ICMP
// errors about its tunnel. The lease is held, the store is heard, every packet is counted once, the log stays
// short, and pods talk.
func TestFloodsOfANode(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: []byte(ipv4Only)})
	node := l.Node(1)
	a, b, c := node.Pods[0], l.Node(2).Pods[0], l.Node(3).Pods[0]
	reach(t, await.Patience, b, a, 4)
	reach(t, await.Patience, c, a, 4)
	h := newcomer(t, l, 77)
	for _, f := range []struct {
		name  string
		flood func(context.Context) (packets int, err error)
	}{
		{"strangers", func(ctx context.Context) (int, error) {
			to := probe.Endpoint{Name: node.Name, NS: node.NS, Addr: node.Underlay4}
			return sends(ctx, probe.Endpoint{Name: h.Name, NS: h.NS}, to, tunnelPort)
		}},
		{"a peer's valid packets", func(ctx context.Context) (int, error) {
			return sends(ctx, c.Endpoint(4), a.Endpoint(4), 9)
		}},
		{"ICMP errors", func(ctx context.Context) (int, error) { return tooLarge(ctx, h, node, l.Node(2)) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			logged, began := size(t, node), time.Now()
			over := flooded(t, f.flood)
			plan := probe.StreamPlan{From: b.Endpoint(4), To: a.Endpoint(4), Bytes: 64 << 20, Verify: true}
			if r, err := probe.Stream(await.Context(t, await.Timers), plan); err != nil {
				t.Errorf("TCP of another peer's pod: %d bytes: %v", r.Received, err)
			}
			n, took := over(), time.Since(began)
			if n := size(t, node) - logged; float64(n) > atFirst+mostLogged*took.Seconds() {
				t.Errorf("%d bytes were logged in %v, want at most %d a second:\n%s", n, took, mostLogged,
					node.Daemon.LogTail(30))
			}
			t.Logf("%d packets", n)
			booked(t, node)
			status(t, node, await.Patience, func(s statusJSON) error {
				if !s.Ready || s.Lease == nil || !s.Lease.Held || !s.Store.Connected || s.Alarm != "" {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
		})
	}
	reach(t, await.Patience, c, a, 4)
}

// flooded starts a flood. over ends it and says how many packets it had.
func flooded(t *testing.T, flood func(context.Context) (packets int, err error)) (over func() int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	type end struct {
		n   int
		err error
	}
	ended := make(chan end, 1)
	go func() { // ends with the context, which over or the test's end cancels
		n, err := flood(ctx)
		ended <- end{n, err}
	}()
	return func() int {
		t.Helper()
		stop()
		e := <-ended
		if e.err != nil || e.n == 0 {
			t.Fatalf("%d packets of the flood: %v", e.n, e.err)
		}
		return e.n
	}
}

// size is how long the log of n's weftd is.
func size(t *testing.T, n *lab.Node) int64 {
	t.Helper()
	info, err := os.Stat(n.Daemon.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// sends has datagrams of 64 bytes sent as fast as possible until ctx ends.
func sends(ctx context.Context, from, to probe.Endpoint, port uint16) (n int, err error) {
	err = from.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		b := make([]byte, 64)
		at := &unix.SockaddrInet4{Addr: to.Addr.As4(), Port: int(port)}
		for ctx.Err() == nil {
			// A port where nobody listens refuses, and a queue may be full: that is the flood's, and not a fault.
			if err := unix.Sendto(fd, b, 0, at); err == nil {
				n++
			}
		}
		return nil
	})
	return n, err
}

// tooLarge has from claim, as a router on the way would, that datagrams of node's to peer do not fit, until
// ctx ends. No two claims are the same.
func tooLarge(ctx context.Context, from *lab.Host, node, peer *lab.Node) (n int, err error) {
	err = from.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		quoted := make([]byte, 28) // an IPv4 and a UDP header
		quoted[0], quoted[8], quoted[9] = 0x45, 63, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(quoted[2:], 1500)
		quoted[6] = 0x40 // DF
		copy(quoted[12:], node.Underlay4.AsSlice())
		copy(quoted[16:], peer.Underlay4.AsSlice())
		binary.BigEndian.PutUint16(quoted[20:], tunnelPort)
		binary.BigEndian.PutUint16(quoted[22:], tunnelPort)
		binary.BigEndian.PutUint16(quoted[24:], 1480)
		b := append([]byte{3, 4, 0, 0, 0, 0, 0, 0}, quoted...) // ICMP: fragmentation needed
		at := &unix.SockaddrInet4{Addr: node.Underlay4.As4()}
		for ctx.Err() == nil {
			binary.BigEndian.PutUint16(b[6:], uint16(576+n%900))
			binary.BigEndian.PutUint16(b[8+4:], uint16(n)) // the quoted datagram's id
			b[2], b[3] = 0, 0
			binary.BigEndian.PutUint16(b[2:], encap.Checksum(b))
			if err := unix.Sendto(fd, b, 0, at); err == nil {
				n++
			}
		}
		return nil
	})
	return n, err
}
