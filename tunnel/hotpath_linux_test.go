package tunnel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// nullPort takes every packet, so that what is left is our own share of the cost.
type nullPort struct{ port.Port }

func (nullPort) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	for _, p := range ps {
		p.Delivered()
	}
}

// newHotPath is a worker outside an engine's loop, with its ports.
func newHotPath(tb testing.TB, peers int) *worker {
	tb.Helper()
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 1})
	if err != nil {
		tb.Fatal(err)
	}
	s := testSpec()
	for i := range peers - len(s.Peers) {
		s.Peers = append(s.Peers, PeerSpec{
			Name: "filler", Weft: true,
			Addr:    netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(2 + i>>8), byte(i), 0}), 24)},
		})
	}
	t, err := NewTable(encap.FormatIP, s)
	if err != nil {
		tb.Fatal(err)
	}
	host, under := &attachedPort{port: nullPort{}, role: RoleHost}, &attachedPort{port: nullPort{}, role: RoleUnderlay}
	w := e.workers[0]
	w.batch = batch{table: t, set: &portSet{host: host, under4: under}, from: host}
	return w
}

// supers is a port that takes superpackets as they are, and packets with a partial checksum if it is true.
type supers bool

func (s supers) LeavesPartial(port.Recv) bool { return bool(s) }
func (supers) Offloads() []port.OffloadStats  { return nil }

// move decides about what was filled in.
func (w *worker) move(ingress bool) {
	if ingress {
		w.flow = &w.tally.ingress
		w.ingress()
	} else {
		w.flow = &w.tally.egress
		w.egress()
	}
	w.totals.add(&w.tally)
}

// fill puts maxReads copies of b into the worker's ring, as ReadBatch would.
func (w *worker) fill(b []byte, from netip.AddrPort) int {
	w.ring.Reset(0)
	for p := w.ring.Slot(); p != nil; p = w.ring.Slot() {
		copy(p.Space(), b)
		p.Outer = from
		w.ring.Commit(len(b))
	}
	return len(w.ring.Batch())
}

// ipv4Packet is an inner packet of size bytes, UDP with checksum 0.
func ipv4Packet(src, dst string, size int) []byte {
	b := make([]byte, size)
	b[0], b[6], b[8], b[9] = 0x45, 0x40, 64, 17
	binary.BigEndian.PutUint16(b[2:], uint16(size))
	s, d := addr(src).As4(), addr(dst).As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[24:], uint16(size-20))
	return b
}

// ipv6Packet is ipv4Packet of the other family.
func ipv6Packet(src, dst string, size int) []byte {
	b := make([]byte, size)
	s, d := addr(src).As16(), addr(dst).As16()
	b[0], b[6], b[7] = 0x60, encap.ProtoUDP, 64
	binary.BigEndian.PutUint16(b[4:], uint16(size-40))
	copy(b[8:], s[:])
	copy(b[24:], d[:])
	return b
}

// tcp4 is an inner TCP packet, or superpacket, with a partial checksum.
func tcp4(payload int) []byte {
	b := ipv4Packet("10.1.1.5", "10.1.2.7", 40+payload)
	b[9], b[32], b[33] = encap.ProtoTCP, 5<<4, 0x10 // header of 20 bytes, ACK
	binary.BigEndian.PutUint16(b[24:], 0)           // where ipv4 has UDP's length
	binary.BigEndian.PutUint16(b[34:], 1000)
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	sum := encap.PseudoHeaderSum(addr("10.1.1.5"), addr("10.1.2.7"), encap.ProtoTCP, 20+payload)
	binary.BigEndian.PutUint16(b[36:], encap.Fold(sum))
	return b
}

// BenchmarkHotPath is what the data plane itself costs a packet: parse, look up,
// check, account; no system call. fill copies the packets in, as a read does.
func BenchmarkHotPath(b *testing.B) {
	for _, peers := range []int{3, 10000} {
		for _, size := range []int{64, 1472} {
			w := newHotPath(b, peers)
			out, in := ipv4Packet("10.1.1.5", "10.1.2.7", size), ipv4Packet("10.1.2.7", "10.1.1.5", size)
			from := netip.MustParseAddrPort("192.0.2.2:8285")
			run := func(name string, step func()) {
				b.Run(fmt.Sprintf("path=portable/dir=%s/peers=%d/size=%d", name, peers, size), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(size))
					for i := 0; b.Loop(); i++ {
						if i%port.MaxReads == 0 { // an iteration is one packet
							step()
						}
					}
				})
			}
			run("fill", func() { w.fill(out, from) })
			run("egress", func() { w.fill(out, from); w.move(false) })
			run("ingress", func() { w.fill(in, from); w.move(true) })
		}
	}
}

// TestHotPathDoesNotAllocate includes the ways that a packet is refused.
func TestHotPathDoesNotAllocate(t *testing.T) { hotPathDoesNotAllocate(t, newHotPath(t, 3)) }

// TestHotPathDoesNotAllocateForWhoLooks has one capture that is read and one whose reader stalls.
func TestHotPathDoesNotAllocateForWhoLooks(t *testing.T) {
	w := newHotPath(t, 3)
	for _, at := range []*attachedPort{w.set.host, w.set.under4} {
		at.local = netip.MustParseAddrPort("192.0.2.1:8285")
	}
	var all []*Capture
	for range 2 {
		c, err := w.engine.Capture(CaptureOptions{Inner: true, Outer: true, Dropped: true,
			Match: func(b []byte) bool { return len(b) > 0 }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	w.captures = w.engine.captures.Load()
	hotPathDoesNotAllocate(t, w)
	n := 0
	for _, ok := all[0].Next(); ok; _, ok = all[0].Next() {
		n++
	}
	if n == 0 || all[1].Missed() == 0 {
		t.Errorf("%d packets were seen, and %d missed by the one that does not read", n, all[1].Missed())
	}
}

func hotPathDoesNotAllocate(t *testing.T, w *worker) {
	t.Helper()
	peer, stranger := netip.MustParseAddrPort("192.0.2.2:8285"), netip.MustParseAddrPort("203.0.113.9:1")
	big := ipv4Packet("10.1.1.5", "10.1.4.7", 1400)
	noDF := ipv4Packet("10.1.1.5", "10.1.4.7", 1400)
	noDF[6] = 0
	for name, tt := range map[string]struct {
		packet  []byte
		from    netip.AddrPort
		ingress bool
	}{
		"egress":     {ipv4Packet("10.1.1.5", "10.1.2.7", 200), peer, false},
		"no route":   {ipv4Packet("10.1.1.5", "10.9.2.7", 200), peer, false},
		"too big":    {big, peer, false},
		"fragmented": {noDF, peer, false},
		"ingress":    {ipv4Packet("10.1.2.7", "10.1.1.5", 200), peer, true},
		"stranger":   {ipv4Packet("10.1.2.7", "10.1.1.5", 200), stranger, true},
		"foreign":    {ipv4Packet("10.9.2.7", "10.1.1.5", 200), peer, true},
		"malformed":  {[]byte{0x45}, peer, true},
	} {
		got := testing.AllocsPerRun(20, func() {
			w.fill(tt.packet, tt.from)
			w.move(tt.ingress)
		})
		if got != 0 {
			t.Errorf("%s: %.1f allocations a batch, want none", name, got)
		}
	}
}

// vtepHotPath is newHotPath in format vxlan.
func vtepHotPath(tb testing.TB) *worker {
	tb.Helper()
	w := newHotPath(tb, 3)
	s := testSpec()
	s.VNI, s.MAC4, s.MAC6 = 7, encap.MAC{2, 1}, encap.MAC{2, 2}
	for i := range s.Peers {
		s.Peers[i].MAC = encap.MAC{2, 3, byte(i)}
	}
	t, err := NewTable(encap.FormatVXLAN, s)
	if err != nil {
		tb.Fatal(err)
	}
	w.table = t
	return w
}

// vtepFrame is a datagram for this node.
func vtepFrame(tb testing.TB, inner []byte) []byte {
	tb.Helper()
	b, err := encap.AppendVXLAN(nil, encap.VXLAN{VNI: 7,
		Ethernet: encap.Ethernet{Dst: encap.MAC{2, 1}, Type: encap.EtherTypeIPv4}})
	if err != nil {
		tb.Fatal(err)
	}
	return append(b, inner...)
}

func TestVXLANHotPathDoesNotAllocate(t *testing.T) {
	w := vtepHotPath(t)
	peer := netip.MustParseAddrPort("192.0.2.2:8472")
	noDF := ipv4Packet("10.1.1.5", "10.1.4.7", 1400)
	noDF[6] = 0
	for name, tt := range map[string]struct {
		packet  []byte
		ingress bool
	}{
		"egress":     {ipv4Packet("10.1.1.5", "10.1.2.7", 200), false},
		"fragmented": {noDF, false},
		"ingress":    {vtepFrame(t, ipv4Packet("10.1.2.7", "10.1.1.5", 200)), true},
		"malformed":  {vtepFrame(t, nil), true},
	} {
		got := testing.AllocsPerRun(20, func() {
			w.fill(tt.packet, peer)
			w.move(tt.ingress)
		})
		if got != 0 {
			t.Errorf("%s: %.1f allocations a batch, want none", name, got)
		}
	}
}

// FuzzVXLANIngress gives a node whatever a peer may send: nothing but what is for this node's VTEP is
// delivered, and all of it is accounted for.
func FuzzVXLANIngress(f *testing.F) {
	f.Add(vtepFrame(f, ipv4Packet("10.1.2.7", "10.1.1.5", 60)))
	f.Add(vtepFrame(f, ipv4Packet("10.1.2.7", "10.1.1.5", 60))[:30])
	f.Add(ipv4Packet("10.1.2.7", "10.1.1.5", 60))
	w := vtepHotPath(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 9000 {
			return
		}
		before, peer := w.tally.ingress, netip.MustParseAddrPort("192.0.2.2:8472")
		n := w.fill(b, peer)
		w.flow = &w.tally.ingress
		w.ingress()
		now := w.tally.ingress
		dropped := uint64(0)
		for r := range now.Drops {
			dropped += now.Drops[r] - before.Drops[r]
		}
		delivered := now.Delivered - before.Delivered
		if delivered+dropped != uint64(n) || now.Received-before.Received != uint64(n) {
			t.Errorf("%d read, %d delivered, %d dropped", n, delivered, dropped)
		}
		h, inner, err := encap.ParseVXLAN(b)
		if delivered > 0 && (err != nil || h.VNI != 7 || h.Dst != encap.MAC{2, 1} || len(inner) < encap.IPv4Len) {
			t.Errorf("delivered: %+v, %v", h, err)
		}
	})
}
