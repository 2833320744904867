package encap

import (
	"fmt"
	"testing"
)

func BenchmarkFramePut(b *testing.B) {
	for _, six := range []bool{false, true} {
		for _, seed := range []bool{false, true} {
			tm, _, _ := template(b, six)
			buf := make([]byte, tm.Len())
			b.Run(fmt.Sprintf("outer=%s/seed=%t", family(six), seed), func(b *testing.B) {
				b.SetBytes(1450)
				b.ReportAllocs()
				for id := uint16(0); b.Loop(); id++ {
					tm.Put(buf, 1450, ECT0, id, seed)
				}
			})
		}
	}
}

func BenchmarkParseFrame(b *testing.B) {
	for _, six := range []bool{false, true} {
		tm, _, _ := template(b, six)
		frame := make([]byte, tm.Len()+1450)
		tm.Put(frame, 1450, ECT0, 1, true)
		b.Run("outer="+family(six), func(b *testing.B) {
			b.SetBytes(1450)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseFrame(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutTunnel(b *testing.B) {
	buf := make([]byte, VNetTunnelHdrLen)
	h := VNetHdr{Flags: VNetNeedsCsum, GSOType: VNetGSOTCPv4 | VNetGSOTunnel4, HdrLen: 82, GSOSize: 1400,
		CsumStart: 62, CsumOffset: ChecksumOffsetTCP}
	b.SetBytes(65000)
	b.ReportAllocs()
	for b.Loop() {
		h.PutTunnel(buf, 34, 42)
	}
}

func BenchmarkUnpack(b *testing.B) {
	for _, size := range []int{64, 400} {
		var dgram []byte
		for len(dgram)+size <= 1450 {
			dgram = append(dgram, transport(false, ProtoTCP, size-40, true)...)
		}
		n := len(dgram) / size
		dgram = append(dgram, Padding(1450-len(dgram))...)
		b.Run(fmt.Sprintf("size=%d/packets=%d", size, n), func(b *testing.B) {
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			for b.Loop() {
				found := 0
				for rest := dgram; len(rest) > 0; found++ {
					in, err := ParseInner(rest)
					if err != nil {
						b.Fatal(err)
					}
					if rest, err = NextPacked(rest, in.TotalLen); err != nil {
						b.Fatal(err)
					}
				}
				if found != n {
					b.Fatal(found)
				}
			}
		})
	}
}

func BenchmarkFlowPairHash(b *testing.B) {
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 1400, true)
		in, err := ParseInner(pkt)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				FlowPairHash(pkt, in)
			}
		})
	}
}
