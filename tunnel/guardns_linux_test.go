package tunnel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

// The tests in this file guard what the real loop costs over real ports, without a clock:
// they count system calls as the kernel saw them. It counts a packet of a TUN for each
// read(2) and write(2) of it, and a UDP datagram for each sendmsg(2) and recvmsg(2), with
// UDP_SEGMENT and UDP_GRO as without. Of path raw it counts the packets of the link: one for each
// frame that is written and that is read, superframes as well, since a veth hands them on whole.

// calls are the system calls of one node that moved something.
type calls struct {
	tunReads, tunWrites, sends, receives uint64
}

func (c calls) sub(earlier calls) calls {
	return calls{c.tunReads - earlier.tunReads, c.tunWrites - earlier.tunWrites, c.sends - earlier.sends,
		c.receives - earlier.receives}
}

// calls reads the kernel's counters of node i, when they rest. No program but the engine
// may use UDP over IPv4 in that namespace at the same time; on path raw one may.
func (o *overlay) calls(t testing.TB, i int) calls {
	t.Helper()
	last := o.callsNow(t, i)
	await.Within(t, within, fmt.Sprintf("node %d at rest", i), func() error {
		time.Sleep(5 * time.Millisecond)
		before := last
		if last = o.callsNow(t, i); last != before {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	return last
}

func (o *overlay) callsNow(t testing.TB, i int) (c calls) {
	t.Helper()
	o.hosts[i].Do(t, func() error {
		l, err := netlink.LinkByName("flannel0")
		if err != nil {
			return err
		}
		s := l.Attrs().Statistics
		c.tunReads, c.tunWrites = s.TxPackets, s.RxPackets
		if !o.paths[i].raw {
			c.receives, c.sends, err = udpCounters()
			return err
		}
		if l, err = netlink.LinkByName("eth0"); err != nil {
			return err
		}
		c.receives, c.sends = l.Attrs().Statistics.RxPackets, l.Attrs().Statistics.TxPackets
		return nil
	})
	// The kernel's own IPv6 chatter is read from the TUN as well, and dropped.
	c.tunReads -= o.engines[i].Stats().Egress.Drops[port.DropMulticast]
	return c
}

// udpCounters are InDatagrams and OutDatagrams of this thread's namespace, over IPv4.
func udpCounters() (in, out uint64, err error) {
	b, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, 0, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			switch n {
			case "InDatagrams":
				in, err = strconv.ParseUint(f[i], 10, 64)
			case "OutDatagrams":
				out, err = strconv.ParseUint(f[i], 10, 64)
			}
		}
	}
	return in, out, err
}

// resting is an overlay over IPv4 whose engines do not run yet, so that packets wait in the
// TUN. run starts both.
func resting(t testing.TB, p path) (o *overlay, run func()) {
	t.Helper()
	o = &overlay{hosts: [2]*host{newHost(t), newHost(t)}, paths: [2]path{p, p}}
	wire(t, o.hosts[0], o.hosts[1], "192.0.2.1/24", "192.0.2.2/24", 1500)
	if p.raw {
		o.quietLink(t)
	}
	for i, h := range o.hosts {
		s := guardSpec(i)
		if p.raw {
			s.Peers[0].Recv = port.Supported &^ port.RecvRuns // whose probes would be counted too
		}
		h.Do(t, func() error {
			if err := o.attach(i, s, s.Self[0].String(), s.UnderlayMTU); err != nil {
				return err
			}
			l, err := netlink.LinkByName("flannel0")
			if err != nil {
				return err
			}
			return netlink.LinkSetTxQLen(l, 2000)
		})
	}
	o.aim(t, "192.0.2.1", "192.0.2.2")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	running := 0
	t.Cleanup(func() {
		cancel()
		for range running {
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	})
	return o, func() {
		for _, e := range o.engines {
			running++
			go func() { done <- e.Run(ctx) }()
		}
	}
}

// quietLink keeps from the wire what the kernel says by itself: that of IPv6, and ARP.
func (o *overlay) quietLink(t testing.TB) {
	t.Helper()
	var macs [2]net.HardwareAddr
	for i, h := range o.hosts {
		h.Do(t, func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			macs[i] = l.Attrs().HardwareAddr
			return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0o644)
		})
	}
	for i, h := range o.hosts {
		h.Do(t, func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.IPv4(192, 0, 2, byte(2-i)), HardwareAddr: macs[1-i]})
		})
	}
}

// guardSpec is node i of two that know each other.
func guardSpec(i int) tunnel.Spec {
	me, peer := i+1, 2-i
	outerAddr := func(n int) string { return fmt.Sprintf("192.0.2.%d", n) }
	subnets := func(n int) []string {
		return []string{fmt.Sprintf("10.1.%d.0/24", n), fmt.Sprintf("fd00:1:%d::/64", n)}
	}
	return tunnel.Spec{
		Local:    prefixes(subnets(me)...),
		Address4: addr(fmt.Sprintf("10.1.%d.0", me)), Address6: addr(fmt.Sprintf("fd00:1:%d::", me)),
		Self: []netip.Addr{addr(outerAddr(me))}, UnderlayMTU: 1500, Check: tunnel.CheckStrict,
		Peers: []tunnel.PeerSpec{{Name: "peer", Addr: addr(outerAddr(peer)), Weft: true,
			Subnets: prefixes(subnets(peer)...)}},
	}
}

// arrive waits until node 1 has handed n packets to its TUN.
func (o *overlay) arrive(t testing.TB, n uint64) {
	t.Helper()
	await.Within(t, within, fmt.Sprintf("%d packets", n), func() error {
		if got := o.engines[1].Stats().Ingress.Delivered; got < n {
			return fmt.Errorf("%d arrived; node 0: %+v, node 1: %+v", got, o.engines[0].Stats(), o.engines[1].Stats())
		}
		return nil
	})
}

// atMost reports each counter that is above its bound.
func (c calls) atMost(t testing.TB, what string, bound calls) {
	t.Helper()
	for _, k := range []struct {
		name       string
		got, bound uint64
	}{
		{"read(2) of the TUN", c.tunReads, bound.tunReads}, {"write(2) of the TUN", c.tunWrites, bound.tunWrites},
		{"sendmsg(2)", c.sends, bound.sends}, {"recvmsg(2)", c.receives, bound.receives},
	} {
		if k.got > k.bound {
			t.Errorf("%s: %d of %s, want at most %d", what, k.got, k.name, k.bound)
		}
	}
}

// TestGuardSuperpacket: 64 KB of TCP or UDP that the kernel hands over in one piece stay in
// few pieces all the way: of 46 segments 45 fit one datagram's 65,507 bytes, so two sends, and
// whole it is one. The first way by a next hop is the kernel's, as a batch.
func TestGuardSuperpacket(t *testing.T) {
	for name, p := range map[string]path{"socket": {}, "raw": {raw: true},
		"raw without tunnel GSO": {raw: true, off: without(port.OffloadTunnel).off}} {
		o, run := resting(t, p)
		run()
		whole := p.raw && !p.off.Has(port.OffloadTunnel)
		if p.raw {
			o.warmUp(t)
		}
		for _, six := range []bool{false, true} {
			for _, proto := range []uint8{encap.ProtoTCP, encap.ProtoUDP} {
				what := fmt.Sprintf("%s, proto=%d,ipv6=%t", name, proto, six)
				const segments, size = 46, 1380
				sends, writes := uint64(2), uint64(2)
				if whole {
					sends, writes = 1, 1
				}
				before := [2]calls{o.calls(t, 0), o.calls(t, 1)}
				arrived := o.engines[1].Stats().Ingress.Delivered
				o.injectSuper(t, proto, six, segments, size)
				o.arrive(t, arrived+segments)
				from, to := o.calls(t, 0).sub(before[0]), o.calls(t, 1).sub(before[1])
				from.atMost(t, what+", sender", calls{tunReads: 1, tunWrites: 9, sends: sends, receives: 9})
				// and its answers
				to.atMost(t, what+", receiver", calls{tunReads: 9, tunWrites: writes, sends: 9, receives: sends})
			}
		}
		for i, e := range o.engines {
			checkOffloads(t, fmt.Sprintf("%s, node %d", name, i), p, e.Stats().Offloads)
		}
		if got := o.used(0, port.OffloadTunnel); whole && (got.Calls != 4 || got.Segments != 4*46) {
			t.Errorf("%s: %d superpackets of %d segments left whole, want 4 of 184", name, got.Calls, got.Segments)
		}
	}
}

// warmUp sends a packet, so that the kernel has had its turn with the next hop.
func (o *overlay) warmUp(t testing.TB) {
	t.Helper()
	arrived := o.engines[1].Stats().Ingress.Delivered
	o.injectSuper(t, encap.ProtoUDP, false, 2, 10)
	o.arrive(t, arrived+2)
}

// used is what node i did with an offload.
func (o *overlay) used(i int, what port.Offload) port.OffloadStats {
	for _, s := range o.engines[i].Stats().Offloads {
		if s.Offload == what {
			return s
		}
	}
	return port.OffloadStats{}
}

// injectSuper gives node 0's TUN a superpacket to node 1, as the kernel's own TCP or a
// forwarded packet would be: one packet with a description, and without its checksum.
func (o *overlay) injectSuper(t testing.TB, proto uint8, six bool, segments, size int) {
	t.Helper()
	b := superpacket(proto, six, segments*size)
	in, err := encap.ParseInner(b)
	if err != nil {
		t.Fatal(err)
	}
	h := encap.VNetHdr{Flags: encap.VNetNeedsCsum, GSOSize: uint16(size), CsumStart: uint16(in.L4),
		CsumOffset: encap.ChecksumOffsetTCP}
	h.HdrLen = uint16(len(b) - segments*size)
	ethertype := uint16(unix.ETH_P_IP)
	switch {
	case proto == encap.ProtoUDP:
		h.GSOType, h.CsumOffset = encap.VNetGSOUDPL4, encap.ChecksumOffsetUDP
	case six:
		h.GSOType = encap.VNetGSOTCPv6
	default:
		h.GSOType = encap.VNetGSOTCPv4
	}
	if six {
		ethertype = unix.ETH_P_IPV6
	}
	frame := make([]byte, encap.VNetHdrLen, encap.VNetHdrLen+len(b))
	h.Put(frame)
	frame = append(frame, b...)
	o.hosts[0].Do(t, func() error {
		l, err := netlink.LinkByName("flannel0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Protocol: ethertype<<8 | ethertype>>8,
				Ifindex: l.Attrs().Index}))
	})
}

// superpacket is one from node 0's TUN to node 1's with payload bytes of zeros, whose
// checksum is the pseudo header's folded sum.
func superpacket(proto uint8, six bool, payload int) []byte {
	l4 := make([]byte, 8, 20)
	if proto == encap.ProtoTCP {
		l4 = l4[:20]
		l4[12], l4[13] = 5<<4, 0x10 // header of 20 bytes, ACK
		binary.BigEndian.PutUint16(l4[14:], 1000)
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(8+payload))
	}
	binary.BigEndian.PutUint16(l4, 1000)
	binary.BigEndian.PutUint16(l4[2:], 2000)
	length := len(l4) + payload
	src, dst := addr("10.1.1.0"), addr("10.1.2.0")
	ip := make([]byte, 20)
	if six {
		src, dst = addr("fd00:1:1::"), addr("fd00:1:2::")
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, proto, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
	} else {
		ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, proto
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length))
		copy(ip[12:], src.AsSlice())
		copy(ip[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], encap.Checksum(ip))
	}
	at := encap.ChecksumOffsetUDP
	if proto == encap.ProtoTCP {
		at = encap.ChecksumOffsetTCP
	}
	binary.BigEndian.PutUint16(l4[at:], encap.Fold(encap.PseudoHeaderSum(src, dst, proto, length)))
	return bytes.Join([][]byte{ip, l4, make([]byte, payload)}, nil)
}

// waiting lets n datagrams of these sizes in turn wait in node 0's TUN, and then starts the engines.
func (o *overlay) waiting(t testing.TB, n int, run func(), sizes ...int) {
	t.Helper()
	in, out := o.flow(t)
	defer unix.Close(in)
	defer unix.Close(out)
	b := make([]byte, 1400)
	for i := range n {
		if _, err := unix.Write(out, b[:sizes[i%len(sizes)]]); err != nil {
			t.Fatal(err)
		}
	}
	run()
	o.arrive(t, uint64(n))
}

// flow is a UDP socket of node 0 that is connected to one of node 1, both blocking.
func (o *overlay) flow(t testing.TB) (in, out int) {
	t.Helper()
	fds := [2]int{}
	for i, local := range [2][4]byte{{10, 1, 1, 0}, {10, 1, 2, 0}} {
		o.hosts[i].Do(t, func() (err error) {
			if fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			tv := unix.NsecToTimeval(int64(within))
			return errors.Join(unix.SetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20),
				unix.SetsockoptTimeval(fds[i], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
				unix.Bind(fds[i], &unix.SockaddrInet4{Addr: local, Port: 4000}))
		})
	}
	if err := unix.Connect(fds[0], &unix.SockaddrInet4{Addr: [4]byte{10, 1, 2, 0}, Port: 4000}); err != nil {
		t.Fatal(err)
	}
	return fds[1], fds[0]
}

// TestGuardSmallPackets: 1,000 equal small packets that wait are read 64 at a time, and each
// batch is one send, one receive and one write. A few batches more are allowed, since the
// receiver may meet a run in two halves. On path raw they share datagrams as well, and those of
// mixed sizes are no more sends.
func TestGuardSmallPackets(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	const n, batches = 1000, 1000/64 + 4
	for _, tt := range []struct {
		name      string
		path      path
		sizes     []int
		writes    uint64
		datagrams uint64
	}{
		{"socket", path{}, []int{64}, batches, n},
		{"raw, packed", path{raw: true}, []int{64}, batches, n/15 + batches}, // 15 of 92 bytes fit 1472
		{"raw, not packed", path{raw: true, off: without(port.OffloadPack).off}, []int{64}, batches, n},
		{"raw, mixed", path{raw: true}, []int{18, 200, 64, 500}, n, n/4 + batches},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, run := resting(t, tt.path)
			idle := [2]calls{o.calls(t, 0), o.calls(t, 1)}
			o.waiting(t, n, run, tt.sizes...)
			from, to := o.calls(t, 0).sub(idle[0]), o.calls(t, 1).sub(idle[1])
			if !tt.path.raw {
				from.sends -= n // the program's own
			}
			from.atMost(t, "sender", calls{tunReads: n, sends: batches})
			to.atMost(t, "receiver", calls{receives: batches, tunWrites: tt.writes})
			o.fewWakeups(t, batches)
			if got := o.used(0, port.OffloadGSO).Segments; got > tt.datagrams {
				t.Errorf("%d datagrams, want at most %d", got, tt.datagrams)
			}
			if got := o.used(0, port.OffloadGSO); got.Calls > 0 && got.Segments/got.Calls < tt.datagrams/batches/2 {
				t.Errorf("%d datagrams in %d sends, want some %d in each", got.Segments, got.Calls, tt.datagrams/batches)
			}
		})
	}
}

// fewWakeups: a batch never costs more than the wake that found it, and few more come in vain.
func (o *overlay) fewWakeups(t testing.TB, batches uint64) {
	t.Helper()
	for i, e := range o.engines {
		if s := e.Stats(); s.Batches > batches+5 || s.Wakeups > s.Batches+5 { // 5: chatter
			t.Errorf("node %d: %d batches and %d wakeups, want at most %d, and a wakeup for each", i, s.Batches,
				s.Wakeups, batches)
		}
	}
}

// TestGuardPortable: a packet is no more than one system call at each of four edges.
func TestGuardPortable(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	o, run := resting(t, path{portable: true})
	idle := [2]calls{o.calls(t, 0), o.calls(t, 1)}
	const n = 500
	o.waiting(t, n, run, 64)
	from, to := o.calls(t, 0).sub(idle[0]), o.calls(t, 1).sub(idle[1])
	if want := (calls{tunReads: n, sends: 2 * n}); from != want { // half of the sends are the program's own
		t.Errorf("sender: %+v, want %+v", from, want)
	}
	to.atMost(t, "receiver", calls{tunWrites: n, receives: n}) // Device joins what comes together
	// The receiver's batches are as short as it is quick.
	if s := o.engines[0].Stats(); s.Batches > n/64+5 || s.Wakeups > s.Batches+5 {
		t.Errorf("sender: %d batches and %d wakeups for %d packets", s.Batches, s.Wakeups, n)
	}
	if s := o.engines[1].Stats(); s.Batches > n || s.Wakeups > s.Batches+5 {
		t.Errorf("receiver: %d batches and %d wakeups for %d packets", s.Batches, s.Wakeups, n)
	}
}
