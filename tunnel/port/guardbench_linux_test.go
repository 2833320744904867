package port

import (
	"encoding/binary"
	"fmt"
	"testing"

	"weft/encap"
)

// BenchmarkGather is what path socket costs a superpacket on its way out, without the
// system call: headers for every segment, and where the payloads are. An iteration is one
// superpacket.
func BenchmarkGather(b *testing.B) {
	for _, size := range []int{64, 1400} {
		segments := min(maxDatagram/(size+40), 64)
		packet := tcp4(segments * size)
		r := NewRing()
		p := r.Slot()
		copy(p.Space(), packet)
		r.Commit(len(packet))
		w := &runWriter{wire: &sockets{group: []*UDPSocket{{}}}, maxSegs: MaxRun, sendmmsg: takeAll}
		w.gso.set(OffloadGSO, 0, true)
		b.Run(fmt.Sprintf("path=socket/segments=%d/mss=%d", segments, size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(packet)))
			for b.Loop() {
				p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = size, true, 20, encap.ChecksumOffsetTCP
				r.io.send.begin(p)
				w.gather(r, p)
			}
			if got := len(r.io.send.parts); got != segments {
				b.Fatalf("%d segments, want %d", got, segments)
			}
		})
	}
}

// BenchmarkGatherRun is the same for small packets of one size that follow one another. An
// iteration is a packet.
func BenchmarkGatherRun(b *testing.B) {
	const size, n = 92, 64 // of 64 bytes with their headers
	r := fillRing(b, n, size, func(int) []byte { return ipv4Packet("10.1.1.5", "10.1.2.7", size) })
	w := &runWriter{wire: &sockets{group: []*UDPSocket{{}}}, maxSegs: MaxRun, sendmmsg: takeAll}
	w.gso.set(OffloadGSO, 0, true)
	b.Run(fmt.Sprintf("path=socket/size=%d", size), func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(size)
		for i := 0; b.Loop(); i++ {
			if i%n == 0 {
				r.io.send.begin(&r.slots[0])
			}
			w.gather(r, &r.slots[i%n])
		}
	})
}

// BenchmarkPack is the same for packets that share datagrams. An iteration is a packet.
func BenchmarkPack(b *testing.B) {
	for name, sizes := range map[string][]int{"92": {92}, "mixed": {46, 228, 92, 528}} {
		b.Run("path=raw/size="+name, func(b *testing.B) {
			const n = 64
			r := fillRing(b, n, 528, func(i int) []byte {
				return ipv4Packet("10.1.1.5", "10.1.2.7", sizes[i%len(sizes)])
			})
			w := &runWriter{wire: &sockets{group: []*UDPSocket{{}}}, maxSegs: MaxRun, sendmmsg: takeAll}
			w.gso.set(OffloadGSO, 0, true)
			w.pack.set(OffloadPack, 0, true)
			for i := range n {
				p := &r.slots[i]
				p.SetLen(sizes[i%len(sizes)])
				p.Recv, p.Limit = RecvPack, 1472
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%n == 0 {
					r.io.send.begin(&r.slots[0])
				}
				w.gather(r, &r.slots[i%n])
			}
		})
	}
}

// BenchmarkTakeFrame is what path raw makes of a frame that it has read: a lone datagram whose
// checksum nobody has looked at, or a batch. An iteration is a frame.
func BenchmarkTakeFrame(b *testing.B) {
	for _, tt := range []struct {
		name     string
		h        encap.VNetHdr
		datagram int
		n        int
	}{
		{"datagram/checksum=partial", encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: 34, CsumOffset: 6}, 1472,
			1},
		{"datagram/checksum=verify", encap.VNetHdr{}, 1472, 1},
		{"batch", encap.VNetHdr{Flags: encap.VNetDataValid, GSOType: encap.VNetGSOUDPL4, GSOSize: 1472}, 1472, 44},
	} {
		frame := frameOf(b, 0, encap.NotECT, make([]byte, tt.datagram*tt.n))
		const front = encap.VNetHdrLen + encap.EthernetLen + encap.IPv4Len + encap.UDPLen
		ring := NewRing()
		f := &frames{local: ours[0], gro: &OffloadSwitch{}}
		in := ring.Slot().buf[Headroom-front:]
		tt.h.Put(in)
		in = in[:encap.VNetHdrLen+copy(in[encap.VNetHdrLen:], frame)]
		b.Run("path=raw/what="+tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ring.Reset(0)
				f.take(ring, ring.Slot(), in, front)
			}
			if ring.n != tt.n {
				b.Fatalf("%d packets, want %d", ring.n, tt.n)
			}
		})
	}
}

// BenchmarkWhole is what a superpacket costs path raw that leaves whole, with a write that is
// none. An iteration is a superpacket.
func BenchmarkWhole(b *testing.B) {
	packet := tcp4(45 * 1400)
	ring := fillRing(b, 1, len(packet), func(int) []byte { return packet })
	p := &ring.slots[0]
	p.SegSize, p.Segments, p.Partial, p.CsumStart, p.CsumOffset, p.Outer = 1400, 45, true, 20,
		encap.ChecksumOffsetTCP, theirs[0]
	w, _ := newWholeWire(b, 0)
	w.tap.fd = -1 // EBADF
	b.Run("path=raw/segments=45/mss=1400", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.whole(&runWriter{}, ring, p)
		}
	})
}

// BenchmarkMerge is what it costs to find the run that a packet joins on its way into the
// TUN, and its checksum's check, without the system call. An iteration is a packet.
func BenchmarkMerge(b *testing.B) {
	for _, size := range []int{64, 1400} {
		for _, flows := range []int{1, 8} {
			b.Run(fmt.Sprintf("path=socket/proto=tcp/flows=%d/mss=%d", flows, size), func(b *testing.B) {
				benchMerge(b, size, flows)
			})
		}
	}
}

func benchMerge(b *testing.B, size, flows int) {
	const n = 40 // less than a run, so that nothing is written
	ring := fillRing(b, n, size+40, func(i int) []byte {
		p := tcp4(size)
		binary.BigEndian.PutUint16(p[20:], uint16(1000+i%flows))
		binary.BigEndian.PutUint32(p[24:], uint32(i/flows*size))
		encap.FinishChecksum(p, 20, encap.ChecksumOffsetTCP)
		return p
	})
	tun := &OffloadTUN{}
	tun.tcp.set(OffloadTCP, 0, true)
	m := &ring.io.merge
	b.ReportAllocs()
	b.SetBytes(int64(size + 40))
	for i := 0; b.Loop(); i++ {
		if i%n == 0 { // forget the runs rather than write them
			m.open = 0
		}
		m.add(tun, &ring.slots[i%n])
	}
}

// fillRing commits n packets of up to size bytes.
func fillRing(b *testing.B, n, size int, packet func(int) []byte) *Ring {
	b.Helper()
	r := NewRing()
	for i := range n {
		p := r.Slot()
		r.Commit(copy(p.Space()[:size], packet(i)))
	}
	return r
}
