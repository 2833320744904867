package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// sizes are inner packets, in bytes: a small one, and the largest that a
// 1500-byte underlay carries in format ip.
var sizes = []int{64, 1472}

// BenchmarkLadder measures one packet on four rungs. Every program has to copy a packet and most
// compute its checksum (copy, checksum); udp is what the kernel takes to send and receive one
// datagram over loopback; loop is what two of our engines take from TUN to underlay to TUN, with
// ports in memory and without the kernel.
func BenchmarkLadder(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("rung=copy/size=%d", size), func(b *testing.B) { benchCopy(b, size) })
		b.Run(fmt.Sprintf("rung=checksum/size=%d", size), func(b *testing.B) { benchChecksum(b, size) })
		b.Run(fmt.Sprintf("rung=udp/size=%d", size), func(b *testing.B) { benchUDP(b, size) })
		b.Run(fmt.Sprintf("rung=loop/size=%d", size), func(b *testing.B) { benchLoop(b, size) })
	}
}

func perPacket(b *testing.B, size int) {
	b.ReportAllocs()
	b.SetBytes(int64(size))
}

func benchCopy(b *testing.B, size int) {
	src, dst := make([]byte, size), make([]byte, size)
	perPacket(b, size)
	for b.Loop() {
		copy(dst, src)
	}
}

func benchChecksum(b *testing.B, size int) {
	p := make([]byte, size)
	perPacket(b, size)
	for b.Loop() {
		encap.Checksum(p)
	}
}

func benchUDP(b *testing.B, size int) {
	in, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	p := make([]byte, 2048)
	perPacket(b, size)
	for b.Loop() {
		if _, err := out.Write(p[:size]); err != nil {
			b.Fatal(err)
		}
		if _, _, err := in.ReadFromUDPAddrPort(p); err != nil {
			b.Fatal(err)
		}
	}
}

// benchLoop sends packets from one engine's TUN to the other's, a batch at a time.
func benchLoop(b *testing.B, size int) {
	a, z := loopNode(b, 1), loopNode(b, 2)
	tunneltest.Connect(a.wire, z.wire)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- a.engine.Run(ctx) }()
	go func() { done <- z.engine.Run(ctx) }()
	packet := innerPacket(size)
	perPacket(b, size)
	const batch = 64
	sent := uint64(0)
	for i := 0; b.Loop(); i++ {
		if i%batch != 0 { // an iteration is one packet
			continue
		}
		for range batch {
			for !a.tun.Inject(tunneltest.Datagram{Data: packet}) {
				time.Sleep(time.Microsecond)
			}
		}
		for sent += batch; z.engine.Stats().Ingress.Received < sent; {
			time.Sleep(time.Microsecond)
		}
		z.tun.Discard()
	}
	b.StopTimer()
	if s := z.engine.Stats().Ingress; s.Delivered != sent {
		b.Errorf("%d of %d delivered: %v", s.Delivered, sent, s.Drops)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

type loop struct {
	engine    *tunnel.Engine
	tun, wire *tunneltest.Port
}

// loopNode makes one of two nodes: 10.1.<me>.0/24 at 192.0.2.<me>.
func loopNode(b *testing.B, me byte) loop {
	b.Helper()
	subnet := func(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, n, 0}), 24) }
	outer := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	const port = 8285
	e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: port, Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	table, err := tunnel.NewTable(encap.FormatIP, tunnel.Spec{
		Local: []netip.Prefix{subnet(me)}, Self: []netip.Addr{outer(me)}, UnderlayMTU: 1500,
		Check: tunnel.CheckStrict,
		Peers: []tunnel.PeerSpec{{Name: "peer", Addr: outer(3 - me), Weft: true,
			Subnets: []netip.Prefix{subnet(3 - me)}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	e.Swap(table)
	l := loop{engine: e}
	if l.tun, err = tunneltest.New(netip.AddrPort{}, 128, 2048); err != nil {
		b.Fatal(err)
	}
	if l.wire, err = tunneltest.New(netip.AddrPortFrom(outer(me), port), 128, 2048); err != nil {
		b.Fatal(err)
	}
	for p, role := range map[*tunneltest.Port]tunnel.Role{l.tun: tunnel.RoleHost, l.wire: tunnel.RoleUnderlay} {
		if _, err := e.Attach(p, role); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

// innerPacket returns an IPv4 packet with UDP from node 1 to node 2, without a UDP checksum.
func innerPacket(size int) []byte {
	p := make([]byte, size)
	p[0], p[6], p[8], p[9] = 0x45, 0x40, 64, 17
	binary.BigEndian.PutUint16(p[2:], uint16(size))
	copy(p[12:], []byte{10, 1, 1, 5, 10, 1, 2, 7})
	binary.BigEndian.PutUint16(p[24:], uint16(size-20))
	return p
}
