package encap

import (
	"fmt"
	"testing"
)

func family(six bool) string {
	if six {
		return "6"
	}
	return "4"
}

// measure is a benchmark of f, which deals with so many bytes.
func measure(b *testing.B, name string, bytes int, f func()) {
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(bytes))
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
}

func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{20, 64, 1450, 9000, 65000} {
		data := make([]byte, size)
		measure(b, fmt.Sprintf("size=%d", size), size, func() { Checksum(data) })
	}
}

func BenchmarkParseInner(b *testing.B) {
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 1400, true)
		measure(b, "ip="+family(six), len(pkt), func() {
			if _, err := ParseInner(pkt); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkRewrite(b *testing.B) {
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 1400, true)
		ttl := 8
		if six {
			ttl = 7
		}
		measure(b, "what=ttl/ip="+family(six), len(pkt), func() {
			pkt[ttl] = 64 // the checksum stays consistent with nothing, which costs the same
			DecrementTTL(pkt)
		})
		e := ECN(0)
		measure(b, "what=ecn/ip="+family(six), len(pkt), func() {
			SetECN(pkt, e)
			e++
		})
	}
}

func BenchmarkEncap(b *testing.B) {
	for _, f := range []Format{FormatIP, FormatVXLAN} {
		for _, o := range []Outer{outer4(), outer6()} {
			buf := make([]byte, MaxOverhead+1450)
			off := MaxOverhead
			if f == FormatVXLAN {
				off -= VXLANOverhead
			}
			measure(b, fmt.Sprintf("proto=%v/outer=%s", f, family(o.Dst.Addr().Is6())), 1450, func() {
				if f == FormatVXLAN {
					_, _ = AppendVXLAN(buf[off:off], VXLAN{VNI: 1})
				}
				at := off - o.headerLen()
				if _, err := AppendOuter(buf[at:at], o, len(buf)-off); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func BenchmarkDecap(b *testing.B) {
	for name, pkt := range kernelPackets(b) {
		if name != "vxlan-v4-tcp-syn" && name != "vxlan-v6-udp" {
			continue
		}
		_, payload, err := parseOuter(pkt)
		if err != nil {
			b.Fatal(err)
		}
		measure(b, "proto=vxlan/packet="+name, len(pkt)-50, func() {
			_, inner, err := ParseVXLAN(payload)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := ParseInner(inner); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, six := range []bool{false, true} {
		tm, _, _ := template(b, six)
		frame := make([]byte, tm.Len()+1450)
		for _, seed := range []bool{false, true} {
			id := uint16(0)
			measure(b, fmt.Sprintf("what=put/outer=%s/seed=%t", family(six), seed), 1450, func() {
				tm.Put(frame, 1450, ECT0, id, seed)
				id++
			})
		}
		measure(b, "what=parse/outer="+family(six), 1450, func() {
			if _, err := ParseFrame(frame); err != nil {
				b.Fatal(err)
			}
		})
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
		measure(b, fmt.Sprintf("size=%d/packets=%d", size, n), n*size, func() {
			found := 0
			for rest := dgram; len(rest) > 0; found++ {
				in, err := ParseInner(rest)
				if err == nil {
					rest, err = NextPacked(rest, in.TotalLen)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if found != n {
				b.Fatal(found)
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
		measure(b, "ip="+family(six), len(pkt), func() { FlowPairHash(pkt, in) })
	}
}
