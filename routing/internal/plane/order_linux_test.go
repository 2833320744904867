package plane

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// TestNoDatagramArrivesTwice: a port of path raw reads frames only while the ingress filter keeps them from
// its UDP socket, at its opening as at its end.
func TestNoDatagramArrivesTwice(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	d := newDriven(t, k, "192.0.2.1", "")
	if _, err := d.Publish(tunnel.Spec{UnderlayMTU: 1500, Check: tunnel.CheckStrict,
		Local: []netip.Prefix{pfx("10.5.1.0/24")},
		Peers: []tunnel.PeerSpec{{Name: "2", Addr: addr("192.0.2.2"), Subnets: []netip.Prefix{pfx("10.5.2.0/24")}}},
	}); err != nil {
		t.Fatal(err)
	}
	host, err := tunneltest.New(netip.AddrPort{}, 1<<16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Engine().Attach(host, tunnel.RoleHost); err != nil {
		t.Fatal(err)
	}
	sent := flood(t)

	times := map[uint32]int{}
	count := func() {
		for {
			got, ok := host.Next(time.Millisecond)
			if !ok {
				return
			}
			times[binary.BigEndian.Uint32(got.Data[len(got.Data)-4:])]++
		}
	}
	for range 10 {
		for before := sent.Load(); sent.Load() < before+100; { // read as frames
			count()
		}
		d.mu.Lock()
		err := d.closePort(&d.sockets[0])
		d.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		d.look(t, 0)
		if err := d.onRaw(); err != nil {
			t.Fatal(err)
		}
	}
	count()
	twice := 0
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	if twice > 0 || len(times) < 500 {
		t.Errorf("of %d datagrams %d arrived, %d of them twice", sent.Load(), len(times), twice)
	}
}

// flood sends numbered datagrams of format ip from 192.0.2.2 until the test ends, and returns their count.
func flood(t *testing.T) *atomic.Uint32 {
	t.Helper()
	far, err := netlink.LinkByName("eth0-far")
	if err != nil {
		t.Fatal(err)
	}
	near, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	outer := layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{192, 0, 2, 2},
		DstIP: []byte{192, 0, 2, 1}}
	inner := layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{10, 5, 2, 2},
		DstIP: []byte{10, 5, 1, 2}}
	udp := layers.UDP{SrcPort: layers.UDPPort(encap.PortIP), DstPort: layers.UDPPort(encap.PortIP)}
	port := layers.UDP{SrcPort: 1, DstPort: 2}
	_ = udp.SetNetworkLayerForChecksum(&outer)
	_ = port.SetNetworkLayerForChecksum(&inner)
	err = gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: far.Attrs().HardwareAddr, DstMAC: near.Attrs().HardwareAddr,
			EthernetType: layers.EthernetTypeIPv4},
		&outer, &udp, &inner, &port, gopacket.Payload(make([]byte, 4)))
	if err != nil {
		t.Fatal(err)
	}
	frame := buf.Bytes()
	frame[40], frame[41] = 0, 0 // no checksum of the outer UDP
	frame[68], frame[69] = 0, 0 // nor of the inner one
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrLinklayer{Ifindex: far.Attrs().Index}
	var (
		sent atomic.Uint32
		wg   sync.WaitGroup
		done = make(chan struct{})
	)
	wg.Go(func() {
		defer unix.Close(s)
		for tick := time.NewTicker(100 * time.Microsecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			for range 8 {
				binary.BigEndian.PutUint32(frame[len(frame)-4:], sent.Load())
				if err := unix.Sendto(s, frame, 0, to); err != nil {
					t.Error(err)
					return
				}
				sent.Add(1)
			}
		}
	})
	t.Cleanup(func() { close(done); wg.Wait() })
	return &sent
}

// childless is a port that notes whether a child could be forked while it was closed.
type childless struct {
	*tunneltest.Port
	forks bool
}

func (c *childless) Close() error {
	if c.forks = syscall.ForkLock.TryLock(); c.forks {
		syscall.ForkLock.Unlock()
	}
	return c.Port.Close()
}

// TestNoChildKeepsAPort: a child has copies of all descriptors until it executes its program, and with those
// of a port the names that the next port needs would stay taken.
func TestNoChildKeepsAPort(t *testing.T) {
	k := inNamespace(t)
	d := newDriven(t, k, "", "")
	mem, err := tunneltest.New(netip.MustParseAddrPort("192.0.2.1:8285"), 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	port := &childless{Port: mem}
	id, err := d.Engine().Attach(port, tunnel.RoleUnderlay)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.closePort(&socketPort{id: id}); err != nil {
		t.Fatal(err)
	}
	if port.forks {
		t.Error("a child could be forked while the port was closed")
	}
}
