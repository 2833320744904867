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

func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{20, 64, 1450, 9000, 65000} {
		data := make([]byte, size)
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				Checksum(data)
			}
		})
	}
}

func BenchmarkParseInner(b *testing.B) {
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 1400, true)
		b.Run("ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseInner(pkt); err != nil {
					b.Fatal(err)
				}
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
		b.Run("what=ttl/ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				pkt[ttl] = 64 // the checksum stays consistent with nothing, which costs the same
				DecrementTTL(pkt)
			}
		})
		b.Run("what=ecn/ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for e := ECN(0); b.Loop(); e++ {
				SetECN(pkt, e)
			}
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
			v := VXLAN{VNI: 1}
			b.Run(fmt.Sprintf("proto=%v/outer=%s", f, family(o.Dst.Addr().Is6())), func(b *testing.B) {
				b.SetBytes(1450)
				b.ReportAllocs()
				for b.Loop() {
					if f == FormatVXLAN {
						_, _ = AppendVXLAN(buf[off:off], v)
					}
					at := off - o.headerLen()
					if _, err := AppendOuter(buf[at:at], o, len(buf)-off); err != nil {
						b.Fatal(err)
					}
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
		b.Run("proto=vxlan/packet="+name, func(b *testing.B) {
			b.SetBytes(int64(len(pkt) - 50))
			b.ReportAllocs()
			for b.Loop() {
				_, inner, err := ParseVXLAN(payload)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := ParseInner(inner); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
