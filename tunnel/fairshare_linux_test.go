package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
)

// BenchmarkFloodBesideOthers has one peer send as fast as it can beside another's 10 Mb/s, and reports how
// much of the other's arrives. Flood, sender and receiver share the processors, so that the figure means
// something on an idle machine.
func BenchmarkFloodBesideOthers(b *testing.B) {
	for name, p := range map[string]path{"portable": {portable: true}, "socket": {}, "raw": {raw: true}} {
		for _, six := range []bool{false, true} {
			if six && p.portable {
				continue // the filter is that of path socket
			}
			b.Run(fmt.Sprintf("path=%s/IPv6=%v", name, six), func(b *testing.B) {
				f := newFlooded(b, p, six)
				stop := f.flood(b)
				await.Within(b, within, "something of the flood", func() error {
					if f.peer(0).RxPackets == 0 {
						return fmt.Errorf("%+v", f.engine.Stats().Ingress)
					}
					return nil
				})
				var sent, got uint64
				for b.Loop() {
					s, g := f.quiet(b)
					sent, got = sent+s, got+g
				}
				stop()
				b.ReportMetric(100*float64(got)/float64(sent), "%arrived")
				await.Within(b, within, "nobody held back after the flood", func() error {
					if n := f.engine.Stats().HeldBack; n > 0 {
						return fmt.Errorf("%d", n)
					}
					return nil
				})
			})
		}
	}
}

// flooded is an engine with three peers on another host, from whose sockets the test sends itself.
type flooded struct {
	engine *tunnel.Engine
	conns  [3]*net.UDPConn
	addrs  [3]netip.Addr
}

func newFlooded(t testing.TB, p path, six bool) *flooded {
	t.Helper()
	local, bits, overhead := "192.0.2.1", "/24", 28
	f := &flooded{addrs: [3]netip.Addr{addr("192.0.2.2"), addr("192.0.2.3"), addr("192.0.2.4")}}
	if six {
		local, bits, overhead = "2001:db8:1::1", "/64", 48
		f.addrs = [3]netip.Addr{addr("2001:db8:1::2"), addr("2001:db8:1::3"), addr("2001:db8:1::4")}
	}
	a, b := newHost(t), newHost(t)
	wire(t, a, b, local+bits, f.addrs[0].String()+bits, 1500)
	s := tunnel.Spec{Local: prefixes("10.1.1.0/24"), Address4: addr("10.1.1.0"), Address6: addr("fd00:1:1::"),
		MTU:  1500 - overhead,
		Self: []netip.Addr{addr(local)}, UnderlayMTU: 1500, Check: tunnel.CheckStrict}
	for i, at := range f.addrs {
		s.Peers = append(s.Peers, tunnel.PeerSpec{Name: at.String(), Addr: at, Weft: true,
			Subnets: prefixes(fmt.Sprintf("10.1.%d.0/24", 2+i))})
	}
	a.Do(t, func() error {
		tun, sock, err := p.open(local)
		if err != nil {
			return err
		}
		cfg := tunnel.Config{Format: encap.FormatIP, Port: udpPort, Workers: p.many}
		if f.engine, err = tunnel.New(cfg); err != nil {
			return err
		}
		_, err = f.engine.Attach(tun, tunnel.RoleHost)
		_, err2 := f.engine.Attach(sock, tunnel.RoleUnderlay)
		return errors.Join(configureTUN(s, s.MTU), err, err2)
	})
	swap(t, f.engine, s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	b.Do(t, func() error {
		errs := []error{addAddr("eth0", f.addrs[1].String()+bits), addAddr("eth0", f.addrs[2].String()+bits)}
		for i, at := range f.addrs {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, udpPort)),
				net.UDPAddrFromAddrPort(outer(local)))
			f.conns[i] = c
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	t.Cleanup(func() {
		for _, c := range f.conns {
			_ = c.Close()
		}
	})
	return f
}

func (f *flooded) peer(i int) tunnel.PeerStats {
	for _, p := range f.engine.Peers() {
		if p.Addr == f.addrs[i] {
			return p
		}
	}
	return tunnel.PeerStats{}
}

// flood sends from the first peer as fast as the kernel takes it, until it is stopped.
func (f *flooded) flood(t testing.TB) (stop func()) {
	t.Helper()
	packet := udp4(t, "10.1.2.7", "10.1.1.0", 1200, nil)
	raw, err := f.conns[0].SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, len(packet))
		})
		err = errors.Join(err, cerr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var run []byte
	for range 40 {
		run = append(run, packet...)
	}
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !ended.Load() {
			_, _ = f.conns[0].Write(run) // a full queue of the sender is no matter
		}
	}()
	return func() { ended.Store(true); <-done }
}

// quiet sends 10 Mb/s from the second peer until the flood is held back, or could be, and then from the
// third, whose packets it counts: none of them was waiting in the queue by then.
func (f *flooded) quiet(t testing.TB) (sent, got uint64) {
	t.Helper()
	send := func(peer int, until func() bool) (n uint64) {
		const gap = time.Millisecond // 1,228 bytes in each
		packet := udp4(t, fmt.Sprintf("10.1.%d.7", 2+peer), "10.1.1.0", 1200, nil)
		for began := time.Now(); !until(); time.Sleep(gap) {
			for due := uint64(time.Since(began) / gap); n < due; n++ {
				if _, err := f.conns[peer].Write(packet); err != nil {
					t.Fatal(err)
				}
			}
		}
		return n
	}
	deadline := time.Now().Add(2 * time.Second)
	send(1, func() bool { return f.engine.Stats().HeldBack > 0 || time.Now().After(deadline) })
	settle := time.Now().Add(100 * time.Millisecond)
	send(1, func() bool { return time.Now().After(settle) })
	before, end := f.peer(2).RxPackets, time.Now().Add(600*time.Millisecond)
	sent = send(2, func() bool { return time.Now().After(end) })
	for end := time.Now().Add(time.Second); ; time.Sleep(5 * time.Millisecond) { // what waits is not lost
		if got = f.peer(2).RxPackets - before; got >= sent || time.Now().After(end) {
			return sent, got
		}
	}
}
