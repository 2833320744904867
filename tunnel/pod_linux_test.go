package tunnel_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

func prefixAddrs(ss ...string) (l []netip.Addr) {
	for _, s := range ss {
		l = append(l, addr(s))
	}
	return l
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(within):
		t.Fatal("nothing came")
	}
	return v
}

// attachPod attaches a pod's port in memory.
func attachPod(t testing.TB, e *tunnel.Engine, mtu int, addrs ...string) *tunneltest.Port {
	t.Helper()
	p := memory(t, netip.AddrPort{})
	if _, err := e.AttachPod(p, tunnel.PodOptions{Addrs: prefixAddrs(addrs...), MTU: mtu}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPodStats counts what a pod sends and gets, with what became of it, for each pod by itself.
func TestPodStats(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 2})
	a := attachPod(t, n.Engine, 1400, "10.1.1.5", "fd00:1:1::5")
	attachPod(t, n.Engine, 0, "10.1.1.6")
	for _, p := range [][]byte{
		udp4(t, "10.1.1.5", "10.1.1.6", 9, nil), udp4(t, "10.1.1.5", "10.1.2.7", 9, nil),
		udp6(t, "fd00:1:1::5", "fd00:1:2::7", 9), udp4(t, "10.1.1.9", "10.1.2.7", 9, nil),
	} {
		a.Inject(tunneltest.Datagram{Data: p})
	}
	n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: udp4(t, "10.1.2.7", "10.1.1.5", 9, nil)})
	settled(t, n, 5)
	var l []tunnel.PodStats
	await.Within(t, within, "the counters", func() error { // they are written after the totals
		if l = n.Pods(); len(l) == 2 && l[0].TxPackets == 4 && l[0].RxPackets == 1 && l[1].RxPackets == 1 {
			return nil
		}
		return fmt.Errorf("%+v", l)
	})
	one, other := l[0], l[1]
	const size4, size6 = 20 + 8 + 9, 40 + 8 + 9
	if one.TxBytes != 3*size4+size6 || one.RxBytes != size4 || other.RxBytes != size4 || other.TxPackets != 0 {
		t.Errorf("counted %+v and %+v", one, other)
	}
	if one.Drops[port.DropForeignSource] != 1 ||
		one.Drops != [port.NumDropReasons]uint64{port.DropForeignSource: 1} || one.RxDrops != other.Drops {
		t.Errorf("drops %v and %v, want one foreign source", one.Drops, other.Drops)
	}
	if one.LastTx.IsZero() || one.LastRx.IsZero() || !other.LastTx.IsZero() ||
		time.Since(other.LastRx) > time.Minute {
		t.Errorf("last packets at %v, %v, %v and %v", one.LastTx, one.LastRx, other.LastTx, other.LastRx)
	}
	if !slices.Equal(one.Addrs, prefixAddrs("10.1.1.5", "fd00:1:1::5")) || one.MTU != 1400 || other.MTU != 0 ||
		one.Port >= other.Port || one.Lost {
		t.Errorf("pods %+v and %+v", one, other)
	}
	if err := n.SetMTU(other.Port, 1280); err != nil || n.Pods()[1].MTU != 1280 {
		t.Errorf("its MTU is %d, %v", n.Pods()[1].MTU, err)
	}
	for range 300 { // more than the port holds while nobody reads
		n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: udp4(t, "10.1.2.7", "10.1.1.6", 9, nil)})
	}
	await.Within(t, within, "packets that the pod does not take", func() error {
		if p := n.Pods()[1]; p.RxDrops[port.DropBusy] == 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// TestPodRefused is what AttachPod and SetMTU refuse.
func TestPodRefused(t *testing.T) {
	n := start(t, spec(), tunnel.Config{})
	attachPod(t, n.Engine, 0, "10.1.1.5")
	for name, o := range map[string]tunnel.PodOptions{
		"no address":        {},
		"another's address": {Addrs: prefixAddrs("10.1.1.6", "10.1.1.5")},
		"loopback":          {Addrs: prefixAddrs("127.0.0.1")},
		"the zero address":  {Addrs: []netip.Addr{{}}},
		"a tiny MTU":        {Addrs: prefixAddrs("10.1.1.7"), MTU: 60},
		"a huge MTU":        {Addrs: prefixAddrs("10.1.1.7"), MTU: 1 << 17},
	} {
		p := memory(t, netip.AddrPort{})
		if id, err := n.AttachPod(p, o); err == nil {
			t.Errorf("%s: it is attached as %d", name, id)
		}
		_ = p.Close()
	}
	if err := n.SetMTU(1, 1400); err == nil {
		t.Error("the host's port has a pod's MTU")
	}
}
