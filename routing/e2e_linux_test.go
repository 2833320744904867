package routing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
)

// node is a host: a namespace and its backend.
type node struct {
	k   *kernel.Kernel
	u   *Node
	own lease.Record
}

// run does ip in the node's namespace.
func (n *node) run(t *testing.T, args string) {
	t.Helper()
	err := n.k.Do(func() error { _, err := netns.TryIP(args); return err })
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) listen(t *testing.T, a netip.Addr) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	err := n.k.Do(func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(a, 7000).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// twoNodes makes two hosts, 192.0.2.1 and .2, joined by a veth pair, which know each
// other as weft nodes, and starts their backends. The first is the thread's namespace. A path of 0 is auto.
func twoNodes(t *testing.T, first *kernel.Kernel, path tunnel.Path) (a, b *node) {
	t.Helper()
	config := lease.NetworkConfig{EnableIPv4: true, Network: net4, EnableIPv6: true, IPv6Network: net6}
	record := func(i int) lease.Record {
		return lease.Record{
			Subnets: lease.Subnets{V4: pfx(fmt.Sprintf("10.5.%d.0/24", i)),
				V6: pfx(fmt.Sprintf("fd00:5:0:%d::/64", i))},
			Attrs: lease.Attrs{PublicIP: addr(fmt.Sprintf("192.0.2.%d", i)),
				Weft: &lease.Weft{Node: fmt.Sprint("node", i)}},
		}
	}
	a = &node{k: first, own: record(1)}
	b = &node{k: newNamespace(t), own: record(2)}
	a.run(t, "link add eth0 type veth peer name far")
	a.run(t, fmt.Sprintf("link set far netns /proc/%d/fd/%d", os.Getpid(), b.k.NS))
	b.run(t, "link set far name eth0")
	for i, n := range []*node{a, b} {
		n.run(t, "link set eth0 up")
		n.run(t, fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", i+1))
		n.u = newTestUDPOn(t, n.k, false, path)
		n.u.cfg.Network.NetworkConfig = config
		start(t, n.u)
	}
	apply(t, a.u, lease.Set{Config: config, Own: a.own, Peers: []lease.Record{b.own}})
	apply(t, b.u, lease.Set{Config: config, Own: b.own, Peers: []lease.Record{a.own}})
	return a, b
}

// TestUDPCarriesPacketsInManyQueues is carriesPackets on a machine of four CPUs.
func TestUDPCarriesPacketsInManyQueues(t *testing.T) {
	first := aloneInNamespace(t) // since the number of CPUs is the whole process's
	was := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	a, _ := carriesPackets(t, first)
	err := a.k.Do(func() error {
		link, err := netns.TryIP("-d link show flannel0")
		if err != nil || !strings.Contains(link, "numqueues 4") {
			t.Errorf("the TUN has no four queues: %v\n%s", err, link)
		}
		sockets, err := os.ReadFile("/proc/thread-self/net/packet")
		var listening, sending int // the fourth field is the protocol: none is what only sends
		for line := range strings.Lines(string(sockets)) {
			switch f := strings.Fields(line); {
			case len(f) < 5 || f[0] == "sk":
			case f[3] == "0000":
				sending++
			default:
				listening++
			}
		}
		if listening != 4 || sending != 4 {
			t.Errorf("%d packet sockets that listen and %d that only send, want four of each:\n%s", listening,
				sending, sockets)
		}

		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// carriesPackets sends packets both ways over two nodes that lose this and that meanwhile.
func carriesPackets(t *testing.T, first *kernel.Kernel) (a, b *node) {
	t.Helper()
	a, b = twoNodes(t, first, 0)
	type flow struct {
		to   net.PacketConn
		from net.PacketConn
	}
	var flows []flow
	for _, six := range []bool{false, true} {
		src, dst := a.own.V4.Addr(), b.own.V4.Addr()
		if six {
			src, dst = a.own.V6.Addr(), b.own.V6.Addr()
		}
		flows = append(flows, flow{b.listen(t, dst), a.listen(t, src)})
	}
	sent := 0
	passes := func() error {
		for i, f := range flows {
			sent++
			ping := fmt.Sprint("ping ", sent)
			if _, err := f.from.WriteTo([]byte(ping), f.to.LocalAddr()); err != nil {
				return err
			}
			_ = f.to.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			for got := ""; got != ping; { // one before may have waited for a neighbour's address
				var buf [16]byte
				n, src, err := f.to.ReadFrom(buf[:])
				got = string(buf[:n])
				if err != nil || !strings.HasPrefix(got, "ping ") || src.String() != f.from.LocalAddr().String() {
					return errors.Join(fmt.Errorf("flow %d: %q from %v", i, got, src), err)
				}
			}
		}
		return nil
	}
	await.OK(t, "first packets", passes)
	a.u.Pause() // for an upgrade, which comes to nothing
	if passes() == nil {
		t.Error("packets pass a data plane that is paused")
	}
	a.u.Resume()
	await.OK(t, "it goes on", passes)
	for _, step := range []struct {
		name, damage, mend string
	}{
		{"underlay address lost and back", "addr del 192.0.2.1/24 dev eth0", "addr add 192.0.2.1/24 dev eth0"},
		{"underlay link down and up", "link set eth0 down", "link set eth0 up"},
		{"route deleted", "route del 10.5.0.0/16 dev flannel0", ""},
		{"device down", "link set flannel0 down", ""},
	} {
		a.run(t, step.damage)
		if step.mend != "" {
			await.OK(t, step.name+": noticed", func() error {
				if passes() == nil {
					return errors.New("packets pass without an underlay")
				}
				return nil
			})
			a.run(t, step.mend)
		}
		await.OK(t, step.name, passes)
	}
	for _, n := range []*node{a, b} {
		if s := n.u.Engine().Stats(); s.Ports != 2 || s.Egress.Delivered+s.Ingress.Delivered == 0 {
			t.Errorf("stats %+v", s)
		}
	}
	// The device itself: sockets bound to its address lose nothing but the route meanwhile.
	a.run(t, "link del flannel0")
	await.OK(t, "device deleted", passes)
	if d, err := a.u.DeviceDrops(); err != nil {
		t.Errorf("drops %d, %v", d, err)
	}
	return a, b
}
