package tunnel

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
		s := &OffloadSocket{runWriter: runWriter{maxSegs: maxRun}}
		s.wire = s
		s.gso.set(OffloadGSO, 0, true)
		b.Run(fmt.Sprintf("path=socket/segments=%d/mss=%d", segments, size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(packet)))
			for b.Loop() {
				p.segSize, p.partial, p.csumStart, p.csumOffset = size, true, 20, encap.ChecksumOffsetTCP
				r.io.send.begin(p)
				s.gather(r, p)
			}
			if got := r.io.send.n; got != segments {
				b.Fatalf("%d segments, want %d", got, segments)
			}
		})
	}
}

// BenchmarkGatherRun is the same for small packets of one size that follow one another. An
// iteration is a packet.
func BenchmarkGatherRun(b *testing.B) {
	const size, n = 92, 64 // of 64 bytes with their headers
	r := fillRing(b, n, size, func(int) []byte { return ipv4("10.1.1.5", "10.1.2.7", size) })
	s := &OffloadSocket{runWriter: runWriter{maxSegs: maxRun}}
	s.wire = s
	s.gso.set(OffloadGSO, 0, true)
	b.Run(fmt.Sprintf("path=socket/size=%d", size), func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(size)
		for i := 0; b.Loop(); i++ {
			if i%n == 0 {
				r.io.send.begin(&r.slots[0])
			}
			s.gather(r, &r.slots[i%n])
		}
	})
}

// BenchmarkMerge is what it costs to find the run that a packet joins on its way into the
// TUN, and its checksum's check, without the system call. An iteration is a packet.
func BenchmarkMerge(b *testing.B) {
	for _, size := range []int{64, 1400} {
		for _, flows := range []int{1, 8} {
			b.Run(fmt.Sprintf("path=socket/proto=tcp/flows=%d/mss=%d", flows, size), func(b *testing.B) { benchMerge(b, size, flows) })
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
