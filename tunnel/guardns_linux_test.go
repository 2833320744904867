package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

// resting is an overlay over IPv4 whose engines do not run yet, so that packets wait in the
// TUN. run starts both.
func resting(t testing.TB, p path) (o *overlay, run func()) {
	t.Helper()
	o = &overlay{hosts: [2]*host{newHost(t), newHost(t)}, paths: [2]path{p, p}}
	wire(t, o.hosts[0], o.hosts[1], "192.0.2.1/24", "192.0.2.2/24", 1500)
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
	return o, func() {
		for _, e := range o.engines {
			running(t, e)
		}
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

// TestGuardSuperpacket: 64 KB of TCP or UDP that the kernel hands over in one piece stay in few pieces all
// the way: of 46 segments 45 fit one datagram's 65,507 bytes, so two sends, and whole it is one. The first
// way by a next hop is the kernel's, as a batch.
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
				const segments, size = 46, 1380
				from, to := port.OffloadTSO, port.OffloadTCP
				if proto == encap.ProtoUDP {
					from, to = port.OffloadUSO, port.OffloadUDP
				}
				sends := map[port.Offload]uint64{port.OffloadGSO: 2}
				if whole {
					sends = map[port.Offload]uint64{port.OffloadTunnel: 1}
				}
				sends[from] = 1
				most := [2]map[port.Offload]uint64{sends, {port.OffloadGRO: 2, to: 2}}
				var before [2][port.NumOffloads]port.OffloadStats
				for i := range before {
					for off := range port.NumOffloads {
						before[i][off] = o.used(i, off)
					}
				}
				arrived := o.engines[1].Stats().Ingress.Delivered
				o.injectSuper(t, proto, six, segments, size)
				o.arrive(t, arrived+segments)
				for i, most := range most {
					for off, most := range most {
						now, before := o.used(i, off), before[i][off]
						calls, moved := now.Calls-before.Calls, now.Segments-before.Segments
						if whole && i == 1 {
							continue // it comes uncut, and goes so
						}
						if calls == 0 || calls > most || moved < segments-1 || moved > segments {
							t.Errorf("%s, protocol %d, IPv6 %t: node %d moved %d packets by %v in %d calls, want %d in at most %d",
								name, proto, six, i, moved, off, calls, segments, most)
						}
					}
				}
			}
		}
		for i, e := range o.engines {
			checkOffloads(t, fmt.Sprintf("%s, node %d", name, i), p, e.Stats().Offloads)
			// 4 superpackets, and some ten errors of a receiver at whose port nobody listens
			if got := work(e).Writes; got > 100 {
				t.Errorf("%s, node %d: %d writes", name, i, got)
			}
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

// work is what all workers of an engine have read and written.
func work(e *tunnel.Engine) (all tunnel.WorkerStats) {
	for _, w := range e.Workers() {
		all.Reads, all.Writes = all.Reads+w.Reads, all.Writes+w.Writes
	}
	return all
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

// TestGuardSmallPackets: 1,000 equal small packets that wait are read 64 at a time, and each batch is one
// send, one receive and one write. A few batches more are allowed, since the receiver may meet a run in two
// halves. On path raw they share datagrams as well, and those of mixed sizes are no more sends.
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
			o.waiting(t, n, run, tt.sizes...)
			for i, writes := range [2]uint64{batches, tt.writes} {
				got := work(o.engines[i])
				// A batch never costs more than the wake that found it, and few more come in vain.
				s := o.engines[i].Stats()
				if got.Writes > writes+5 || s.Batches > batches+5 || s.Wakeups > s.Batches+5 { // 5: chatter
					t.Errorf("node %d: %d reads, %d writes, %d batches, %d wakeups; want at most %d writes, %d batches, "+
						"and a wakeup for each", i, got.Reads, got.Writes, s.Batches, s.Wakeups, writes, batches)
				}
			}
			if got := o.used(0, port.OffloadGSO); got.Calls > batches || got.Segments > tt.datagrams ||
				got.Calls > 0 && got.Segments/got.Calls < tt.datagrams/batches/2 {
				t.Errorf("%d datagrams in %d sends, want at most %d in %d", got.Segments, got.Calls, tt.datagrams,
					batches)
			}
			if got := o.used(1, port.OffloadGRO); got.Calls > batches {
				t.Errorf("%d receives, want at most %d", got.Calls, batches)
			}
		})
	}
}

// TestOutletWithoutRuns: a port that sends no runs, or has lost them, does not say that superpackets leave in
// runs.
func TestOutletWithoutRuns(t *testing.T) {
	o, _ := resting(t, path{raw: true, off: port.OffloadSet(0).With(port.OffloadGSO)})
	for set, want := range map[port.Outlet]port.Outlet{port.OutletRuns: port.OutletCut,
		port.OutletWhole: port.OutletWhole} {
		o.raws[0].SetOutlet(port.OutletChoice{Outlet: set})
		if s := o.engines[0].Stats().Outlets; len(s) != 1 || s[0].Now != want || s[0].Chosen.Outlet != set {
			t.Errorf("outlet %v: %+v, want %v", set, s, want)
		}
	}
}
