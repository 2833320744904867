package port

import (
	"encoding/binary"
	"fmt"
	"testing"

	"weft/encap"
)

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

// tcpSuper is a ring with a superpacket of TCP.
func tcpSuper(b *testing.B, segments, mss int) (*Ring, *Packet) {
	packet := tcp4(segments * mss)
	r := fillRing(b, 1, len(packet), func(int) []byte { return packet })
	p := &r.slots[0]
	p.SegSize, p.Segments, p.Partial, p.CsumStart, p.CsumOffset = mss, segments, true, 20,
		encap.ChecksumOffsetTCP
	return r, p
}

// BenchmarkGather is what path socket costs a superpacket on its way out, without the system call: headers
// for every segment, and where the payloads are. An iteration is one superpacket.
func BenchmarkGather(b *testing.B) {
	for _, size := range []int{64, 1400} {
		segments := min(maxDatagram/(size+40), 64)
		r, p := tcpSuper(b, segments, size)
		w := newFakeWire(b, MaxRun).w
		b.Run(fmt.Sprintf("path=socket/segments=%d/mss=%d", segments, size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(p.Bytes())))
			for b.Loop() {
				p.SegSize, p.Partial = size, true
				r.io.send.begin(p)
				w.gather(r, p)
			}
			if got := len(r.io.send.parts); got != segments {
				b.Fatalf("%d segments, want %d", got, segments)
			}
		})
	}
}

// BenchmarkGatherRun is the same for small packets that follow one another: of one size, and such as share
// datagrams. An iteration is a packet.
func BenchmarkGatherRun(b *testing.B) {
	for _, c := range []struct {
		name  string
		sizes []int
		recv  Recv
	}{{"path=socket/size=92", []int{92}, 0}, {"path=raw/size=92", []int{92}, RecvPack},
		{"path=raw/size=mixed", []int{46, 228, 92, 528}, RecvPack}} {
		b.Run(c.name, func(b *testing.B) {
			const n = 64
			r := fillRing(b, n, 528, func(i int) []byte {
				return ipv4Packet("10.1.1.5", "10.1.2.7", c.sizes[i%len(c.sizes)])
			})
			for i := range n {
				r.slots[i].Recv, r.slots[i].Limit = c.recv, 1472
			}
			w := newFakeWire(b, MaxRun).w
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

// BenchmarkTakeFrame is what path raw makes of a frame that it has read: a lone datagram whose checksum
// nobody has looked at, or a batch. An iteration is a frame.
func BenchmarkTakeFrame(b *testing.B) {
	for _, tt := range []struct {
		name string
		h    encap.VNetHdr
		n    int
	}{
		{"datagram/checksum=partial", encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: 34, CsumOffset: 6}, 1},
		{"datagram/checksum=verify", encap.VNetHdr{}, 1},
		{"batch", encap.VNetHdr{Flags: encap.VNetDataValid, GSOType: encap.VNetGSOUDPL4, GSOSize: 1472}, 44},
	} {
		frame := frameOf(b, 0, encap.NotECT, make([]byte, 1472*tt.n))
		front := encap.VNetHdrLen + frameHead(0)
		ring := NewRing()
		f := &frames{local: ours[0], gro: &OffloadSwitch{}}
		in := ring.Slot().buf[Headroom-front:]
		tt.h.Put(in)
		in = in[:encap.VNetHdrLen+copy(in[encap.VNetHdrLen:], frame)]
		b.Run("path=raw/what="+tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ring.Reset(0)
				f.commitFrame(ring, ring.Slot(), in, front)
			}
			if ring.n != tt.n {
				b.Fatalf("%d packets, want %d", ring.n, tt.n)
			}
		})
	}
}

// BenchmarkWhole is what a superpacket costs path raw that leaves whole, with a write that is none. An
// iteration is a superpacket.
func BenchmarkWhole(b *testing.B) {
	ring, p := tcpSuper(b, 45, 1400)
	p.Outer = theirs[0]
	w, _ := newWholeWire(b, 0)
	w.tap.fd = -1 // EBADF
	b.Run("path=raw/segments=45/mss=1400", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.whole(&runWriter{}, ring, p)
		}
	})
}

// BenchmarkMerge is what it costs to find the run that a packet joins on its way into the TUN, and its
// checksum's check, without the system call. An iteration is a packet.
func BenchmarkMerge(b *testing.B) {
	for _, size := range []int{64, 1400} {
		for _, flows := range []int{1, 8} {
			b.Run(fmt.Sprintf("path=socket/proto=tcp/flows=%d/mss=%d", flows, size), func(b *testing.B) {
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
			})
		}
	}
}
