package test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/bench/load"
	"weft/encap"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// mostLogged is how many bytes a second a weftd may log while it is flooded, and atFirst what a flood may say before anything is held back.
const (
	mostLogged = 10 << 10
	atFirst    = 20 << 10
)

// tunnelPort is that of a network of type udp.
const tunnelPort = 8285

// TestFloodsOfANode has a node flooded as fast as this machine can: by a stranger on the underlay, by a peer's pod with packets that are
// in order, and with forged ICMP errors about its tunnel. A connection of two other nodes' pods goes on, the lease is held, the store
// is heard, the books balance, and the log stays short. How much of its goodput the connection keeps is said: sender, receiver and
// flood share the processors here, so that it is compared also with what it has while a flood of strangers goes to a host that is nobody's node.
func TestFloodsOfANode(t *testing.T) {
	busy(t)
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: []byte(ipv4Only), WeftdArgs: []string{"--ip-masq", "--subnet-lease-renew-margin=1439"}}) // each minute
	node := l.Node(1)
	a, b, c := node.Pods[0], l.Node(2).Pods[0], l.Node(3).Pods[0]
	reach(t, await.Patience, b, a, 4)
	reach(t, await.Patience, c, a, 4)
	h := newcomer(t, l, 77)
	strangers := func(at *lab.Host, addr netip.Addr) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			return sends(ctx, probe.Endpoint{Name: h.Name, NS: h.NS}, probe.Endpoint{Name: at.Name, NS: at.NS, Addr: addr}, tunnelPort)
		}
	}
	quiet := goodput(t, b, a)
	over := flooded(t, strangers(newcomer(t, l, 78), netip.MustParseAddr("198.18.0.78")))
	elsewhere := goodput(t, b, a)
	over()
	for _, f := range []struct {
		name  string
		flood func(context.Context) (packets int, err error)
	}{
		{"strangers", strangers(node.Host, node.Underlay4)},
		{"a peer's valid packets", func(ctx context.Context) (int, error) {
			return sends(ctx, c.Endpoint(4), a.Endpoint(4), 9)
		}},
		{"ICMP errors", func(ctx context.Context) (int, error) { return tooLarge(ctx, h, node, l.Node(2)) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			logged, began := size(t, node), time.Now()
			over := flooded(t, f.flood)
			beside := goodput(t, b, a)
			n := over()
			took := time.Since(began)
			t.Logf("%d packets in %v (%.0f a second); goodput %.2f Gb/s beside it, %.2f beside one that goes elsewhere: %.2f; %.2f without any: %.2f",
				n, took.Round(time.Millisecond), float64(n)/took.Seconds(), beside, elsewhere, beside/elsewhere, quiet, beside/quiet)
			if n := size(t, node) - logged; float64(n) > atFirst+mostLogged*took.Seconds() {
				t.Errorf("%d bytes were logged in %v, at the most %d a second are right:\n%s", n, took, mostLogged, node.Daemon.LogTail(30))
			}
			booked(t, node)
			status(t, node, await.Patience, func(s statusJSON) error {
				if !s.Ready || s.Lease == nil || !s.Lease.Held || !s.Store.Connected || s.Alarm != "" {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
		})
	}
	if os.Getenv("WEFT_LONG") != "" {
		before := current(t, node).Lease.Expires
		over := flooded(t, strangers(node.Host, node.Underlay4))
		took := await.Within(t, 3*time.Minute, "the lease is renewed", func() error {
			s, err := ask[statusJSON](t.Context(), node, "status")
			if err == nil && (s.Lease == nil || !s.Lease.Expires.After(before)) {
				err = fmt.Errorf("%+v, which ended %v before", s.Lease, before)
			}
			return err
		})
		t.Logf("%d packets of strangers until the lease was renewed, in %v", over(), took.Round(time.Second))
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

// goodput is how much one connection carries for two seconds, in Gb/s.
func goodput(t *testing.T, from, to *lab.Pod) float64 {
	t.Helper()
	r, err := load.TCP(await.Context(t, await.Patience), load.TCPPlan{From: from.Endpoint(4), To: to.Endpoint(4), WarmUp: 500 * time.Millisecond, Duration: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return r.GigabitsPerSecond()
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

// tooLarge has from claim, as a router on the way would, that datagrams of node's to peer do not fit, until ctx ends. No two claims are the same.
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
