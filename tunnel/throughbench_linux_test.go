package tunnel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"weft/encap"
)

// mergePort is a TUN into which packets are merged as far as the system call, which is left out.
type mergePort struct {
	Port
	tun OffloadTUN
}

func (m *mergePort) WriteBatch(r *Ring, ps []*Packet) {
	r.io.merge.ring = r
	for _, p := range ps {
		r.io.merge.add(&m.tun, p)
		p.Delivered()
	}
	r.io.merge.open = 0 // forget the runs rather than write them
}

// BenchmarkThrough is what a packet costs from the end of the read to the beginning of the write: from the
// underlay into the TUN, where packets of a flow are merged, and from the TUN to the underlay, where
// superpackets are cut. The packets are copied in for each iteration, as a read does, and an iteration is a
// packet or superpacket.
func BenchmarkThrough(b *testing.B) {
	for _, size := range []int{64, 1400} {
		for _, flows := range []int{1, 8} {
			b.Run(fmt.Sprintf("dir=ingress/flows=%d/mss=%d", flows, size), func(b *testing.B) {
				throughMerge(b, size, flows, false)
			})
		}
	}
	b.Run("dir=ingress/pcsum=true/flows=1/mss=1400", func(b *testing.B) { throughMerge(b, 1400, 1, true) })
	for _, recv := range []Recv{0, Supported &^ RecvGSO} {
		for _, segments := range []int{1, 2, 45} {
			b.Run(fmt.Sprintf("dir=egress/pcsum=%t/segments=%d", recv&RecvPCsum != 0, segments), func(b *testing.B) {
				throughCut(b, recv, segments)
			})
		}
	}
}

func throughMerge(b *testing.B, size, flows int, partial bool) {
	const n = 40 // less than a run
	w := newHotPath(b, 3)
	port := &mergePort{}
	port.tun.tcp.set(OffloadTCP, 0, true)
	w.set.host = &attached{port: port, role: RoleHost, super: &port.tun}
	packets := make([][]byte, n)
	for i := range packets {
		p := tcp4(size)
		copy(p[12:], []byte{10, 1, 2, 7, 10, 1, 1, 5})
		binary.BigEndian.PutUint16(p[20:], uint16(1000+i%flows))
		binary.BigEndian.PutUint32(p[24:], uint32(i/flows*size))
		if partial {
			binary.BigEndian.PutUint16(p[36:], encap.Fold(encap.PseudoHeaderSumRaw(p[12:20], encap.ProtoTCP, 20+size)))
		} else {
			encap.FinishChecksum(p, 20, encap.ChecksumOffsetTCP)
		}
		packets[i] = p
	}
	from := netip.MustParseAddrPort("192.0.2.2:8285")
	b.ReportAllocs()
	b.SetBytes(int64(size + 40))
	for i := 0; b.Loop(); i++ {
		if i%n > 0 { // an iteration is one packet
			continue
		}
		w.ring.reset()
		for _, packet := range packets {
			p := w.ring.Slot()
			copy(p.Space(), packet)
			p.Outer = from
			w.ring.Commit(len(packet))
		}
		w.move(true)
	}
}

func throughCut(b *testing.B, recv Recv, segments int) {
	const mss = 1400
	w := newHotPath(b, 3)
	wire := &countingWire{}
	runs := newRunWriter(wire, UDPOptions{}, "bench", true)
	runs.sendmmsg = takeAll
	w.set.under4 = &attached{port: &runPort{w: runs}, role: RoleUnderlay, super: &OffloadSocket{runs: runs}}
	packet := tcp4(segments * mss)
	peer, ok := w.table.routes.Lookup(netip.MustParseAddr("10.1.2.7"))
	if !ok {
		b.Fatal("no peer")
	}
	peer.spec.Recv = recv
	b.ReportAllocs()
	b.SetBytes(int64(len(packet)))
	for b.Loop() {
		w.ring.reset()
		p := w.ring.Slot()
		copy(p.Space()[:40], packet) // the payload is not read before the system call, but for its checksum
		w.ring.Commit(len(packet))
		p.partial, p.csumStart, p.csumOffset = true, 20, encap.ChecksumOffsetTCP
		if segments > 1 {
			p.segSize = mss
		}
		w.move(false)
	}
	if wire.datagrams < segments {
		b.Fatalf("%d datagrams for one of %d segments", wire.datagrams, segments)
	}
}
